_(x) if q(x);
