p(x) if quota(x, q) and used(x, u) and u + 1 < q * 2;
