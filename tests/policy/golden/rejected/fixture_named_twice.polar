actor User {}
actor Bot {}
declare p(User);
test fixture f { p(User{"x"}); }
test fixture f { p(User{"y"}); }
