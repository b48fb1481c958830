actor User {}
actor Bot {}
p(x: User) if (q(x, y) or r(x)) and y < 3;
