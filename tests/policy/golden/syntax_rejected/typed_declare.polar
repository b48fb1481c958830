declare p(x: User, "a");
