actor User {}
actor Bot {}
declare p(User, User, User, User, User, User);
