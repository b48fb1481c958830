actor User {}
actor Bot {}
p(x: User) if q(x) and not not r(x, y) and not s(y);
