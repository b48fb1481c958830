actor User {}
actor Bot {}
resource Org { roles = ["member"]; permissions = ["invite"]; relations = { owner: User }; }
test "a" { setup { has_role(User{"x"}); } assert_not allow(User{"x"}, "invite", Org{"y"}); }
