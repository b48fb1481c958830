p(x) if x in y;
