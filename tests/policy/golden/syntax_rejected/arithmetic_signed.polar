p(x) if used(x, u) and u-1 < 3;
