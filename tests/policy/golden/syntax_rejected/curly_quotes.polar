has_role(User{“alice”}, ‘admin’);
