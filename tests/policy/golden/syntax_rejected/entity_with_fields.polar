p(User{id: 3});
