nullary();
has_role(_: User, "user");
has_relation(Field{"email"}, "parent", _: Account);
has_permission(user: User, "read_profile", user: User);
allow(actor, action, resource) if has_permission(actor, action, resource);
limit(Plan{"free"}, -3, +4, 007, true, false);
same(_, _x, x);
