p(x) if q(x));
