p(x) if "a" matches String and x matches "a";
