p(x) if q(User{x});
