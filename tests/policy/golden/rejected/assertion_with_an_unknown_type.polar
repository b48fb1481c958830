actor User {}
actor Bot {}
resource Org { roles = ["member"]; permissions = ["invite"]; relations = { owner: User }; }
test "a" { assert allow(Usr{"x"}, "invite", Org{"y"}); assert allow(User{"x"}, a: Strng, Org{"y"}) iff a in ["invite"]; }
