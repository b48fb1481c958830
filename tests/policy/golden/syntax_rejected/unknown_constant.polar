p(x) if q(x, @now);
