p(x) if 3 and User{"a"} and @current_unix_time;
