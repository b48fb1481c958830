actor User {}
actor Bot {}
declare p(User);
test fixture a { fixture b; p(User{"x"}); }
