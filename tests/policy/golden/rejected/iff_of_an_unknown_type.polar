actor User {}
actor Bot {}
resource Org { roles = ["member"]; permissions = ["invite"]; relations = { owner: User }; }
test "a" { assert allow(u: User, "invite", Org{"y"}) iff u in [Usr{"x"}]; }
