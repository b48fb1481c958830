actor User {}
actor Bot {}
p(x: User) if y matches Bot and not q(x, y);
