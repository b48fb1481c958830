p(x) if q(x) else r(x);
