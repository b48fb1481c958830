actor User {}
actor Bot {}
p(x: User) if not (x matches Bot and q(x));
