test "x" {
  assert not p(1);
}
