actor User {}
actor Bot {}
declare p(User);
test "a" { assert p(User{"x"}); }
test "a" { assert p(User{"y"}); }
