test "x" {
  setup { p(x); q(y: User); r(@current_unix_time); }
  assert p(1);
}
