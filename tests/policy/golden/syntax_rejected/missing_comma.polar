has_role(user "admin");
