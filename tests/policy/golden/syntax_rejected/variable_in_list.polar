p(x) if x in ["a", y];
