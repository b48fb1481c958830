actor User {}
actor Bot {}
p(x) if x matches Usr and q(x);
