actor User {}
actor Bot {}
p(x: User) if x = "ann";
