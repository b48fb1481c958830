p(not, x) if q(x);
