p(x) if q(owner(x), 3);
