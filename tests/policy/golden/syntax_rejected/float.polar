p(x) if has_score(x, 1.5) and 1e3 < .5;
