actor User {}
actor Bot {}
p(x: User) if q(x) and not (r(x) and y < 3);
