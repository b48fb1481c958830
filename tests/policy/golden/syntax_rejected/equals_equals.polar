p(x, y) if x == y;
