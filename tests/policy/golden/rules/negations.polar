actor User {}
actor Team {}
resource Doc {}
a(x: User) if not b(x);
c(x: User) if d(x, y) and not e(x, y, _z);
f(x: User) if not (b(x) and d(x, z) and not e(x, z, _));
g(x: User) if not (b(x) or d(x, "a"));
h(x: User) if not not b(x) and not not not d(x, "a");
i(x: User, y: User) if not x = y and not x != y;
j(x: User) if d(x, n) and not n < 3;
k(x: Resource) if b(x) and not x matches Actor;
l(x: Doc) if not (role matches String and requires_role(x, role) and not has_role(x, role));
