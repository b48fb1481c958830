actor User {}
actor Bot {}
resource Doc { roles = ["a", "a"]; "b" if "a"; "a" if "c" on "d"; }
p(x: Usr) if y < 3;
q(x: User) if not q(x);
test "t" { assert p(Usr{"x"}); }
