test "x" {
  assert p(1)
  assert q(1);
}
