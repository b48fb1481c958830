p(x) if is_open;
