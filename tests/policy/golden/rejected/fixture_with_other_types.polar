actor User {}
actor Bot {}
resource Org { roles = ["member"]; permissions = ["invite"]; relations = { owner: User }; }
test fixture f { has_relation(Org{"y"}, "owner", Org{"x"}); }
