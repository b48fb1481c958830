p(x, y,) if q(x);
