p(x) iff q(x);
