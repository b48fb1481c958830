actor User {}
actor Bot {}
p(x: User) if q(x) and (r(x) or x matches Bot and s(x));
