test "x" {
  assert p(x: User, y: String);
}
