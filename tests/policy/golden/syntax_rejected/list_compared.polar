p(x) if x = ["a", "b"];
