p(User{});
