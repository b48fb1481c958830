actor User {}
actor Bot {}
declare p(User);
test fixture a { fixture b; }
test fixture b { fixture c; p(User{"x"}); }
test fixture c { fixture a; }
