actor User {}
actor Bot {}
p(x: User) if q(x, y) and y < "b";
