p(x) if cost(x, $5) and q(x) ^ r(x) and y?z(x);
