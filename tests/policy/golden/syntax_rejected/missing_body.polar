p(x) if;
