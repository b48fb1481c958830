test "x" {
  assert p(@current_unix_time);
}
