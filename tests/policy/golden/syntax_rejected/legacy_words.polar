p(x) if cut and forall(x, y) and print("a") and of(x);
debug(x);
