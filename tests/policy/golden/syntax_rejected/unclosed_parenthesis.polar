p(x) if (q(x) or r(x);
