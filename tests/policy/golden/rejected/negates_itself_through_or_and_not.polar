actor User {}
actor Bot {}
p(x: User) if q(x) and (r(x) or not (s(x) and not not p(x)));
