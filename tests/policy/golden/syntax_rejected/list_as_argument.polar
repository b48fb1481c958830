p(x) if q(["a", "b"]);
