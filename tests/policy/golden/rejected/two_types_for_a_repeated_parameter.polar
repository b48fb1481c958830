actor User {}
actor Bot {}
p(x: User, x: Bot);
