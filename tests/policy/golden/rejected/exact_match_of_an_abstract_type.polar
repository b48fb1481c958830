actor User {}
actor Bot {}
p(x) if q(x) and x matches! Resource;
