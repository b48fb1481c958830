actor User {}
actor Bot {}
resource Org { roles = ["member"]; permissions = ["invite"]; relations = { owner: User }; }
test "a" { setup { has_role(Org{"x"}, "member", User{"y"}); } assert_not allow(User{"x"}, "invite", Org{"y"}); }
