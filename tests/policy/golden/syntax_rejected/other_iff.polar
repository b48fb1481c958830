test "x" {
  assert p(x: User) iff x = "a";
}
