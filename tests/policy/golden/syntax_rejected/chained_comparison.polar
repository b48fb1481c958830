p(x) if 1 < x < 3;
