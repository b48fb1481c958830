?= p(1) and q(2);
