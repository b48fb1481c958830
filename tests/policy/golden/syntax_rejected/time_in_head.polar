p(@current_unix_time) if q(x);
