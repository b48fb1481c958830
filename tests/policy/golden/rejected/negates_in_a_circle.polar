actor User {}
actor Bot {}
p(x: User) if q(x) and not r(x);
r(x: User) if s(x);
s(x: User) if t(x) and p(x);
