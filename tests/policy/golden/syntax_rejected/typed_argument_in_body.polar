p(x) if q(x: User);
