p(x) if q(x)
  and 1.5 < x;
