p(x) if y := 3 and q(x, y);
