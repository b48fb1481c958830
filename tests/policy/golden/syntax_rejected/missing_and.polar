p(x) if q(x) r(x);
