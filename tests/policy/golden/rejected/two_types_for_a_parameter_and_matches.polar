actor User {}
actor Bot {}
p(x: User) if x matches Bot and q(x);
