in(x, y);
