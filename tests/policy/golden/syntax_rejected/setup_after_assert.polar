test "x" {
  assert p(1);
  setup { p(1); }
}
