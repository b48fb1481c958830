actor User {}
actor Bot {}
p(x: Usr) if q(x);
