actor User {}
actor Bot {}
declare p(User);
test fixture people { p(User{"x"}); }
test "a" { setup { fixture peple; } assert p(User{"x"}); }
