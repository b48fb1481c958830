actor User {}
actor Bot {}
p(x: string, y: int) if q(x, y);
