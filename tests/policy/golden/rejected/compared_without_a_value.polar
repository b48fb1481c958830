actor User {}
actor Bot {}
p(x: User) if y < 3 and q(x);
