actor User {}
resource Org {}
resource Field {}
has_role(_: User, "user");
has_permission(_: User, "read", _: Org);
has_permission(user: User, "read_profile", user: User);
has_relation(Field{"email"}, "parent", _: Org);
has_permission(_: User, "create", "Organization");
limit(Integer{3}, Boolean{true}, String{"x"}, -3);
anything(_, x, x);
nothing();
sure(x: User) if true;
