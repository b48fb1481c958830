actor User {}
actor Bot {}
p(x: User) if q(x, y) and y in ["a"] and y > 3;
