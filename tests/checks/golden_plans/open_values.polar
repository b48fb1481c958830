# Rules that hold for every value, and for every value but some.
actor User {}
actor Group {}

resource Park { permissions = ["enter", "leave", "water"]; }

member(_: User, g: Group) if open(g);
member(a: Actor, g: Group) if has_group(a, g);
member(a: Actor, g: Group) if has_group(a, h) and member(h, g);
has_permission(_: User, "enter", p: Park) if is_public(p);
has_permission(u: User, "enter", p: Park) if member(u, g) and shared(g, p) and not barred(u, p);
has_permission(_: User, "leave", _: Park);
has_permission(u: User, "water", p: Park) if is_gardener(u) and not barred(u, p);
barred(a: Actor, p: Park) if bar(a, p);
barred(a: Actor, p: Park) if has_group(a, g) and barred(g, p);
