test "x" {
  p(1);
  assert p(1);
}
