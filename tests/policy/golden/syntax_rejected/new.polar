p(x) if q(new User("alice"));
