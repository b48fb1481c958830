p(x) if q(x) and (r(x) or not);
