test "x" {
  setup { p(1); }
}
