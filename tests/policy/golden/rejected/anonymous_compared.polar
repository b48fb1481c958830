actor User {}
actor Bot {}
p(x: User) if q(x) and x != _;
