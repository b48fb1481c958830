# Recursion that takes two of its own answers at once.
actor User {}

resource Node { permissions = ["use", "see"]; relations = { left: Node, right: Node }; }

ok(a: User, n: Node) if fine(a, n);
ok(a: User, n: Node) if has_relation(n, "left", l) and has_relation(n, "right", r) and ok(a, l) and ok(a, r) and not bad(a, n);
near(x: Node, y: Node) if has_relation(x, "left", y);
near(x: Node, z: Node) if near(x, y) and near(y, z);
has_permission(u: User, "use", n: Node) if ok(u, n);
has_permission(u: User, "see", n: Node) if near(n, m) and fine(u, m);
