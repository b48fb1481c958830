p(x) if q(x) and;
