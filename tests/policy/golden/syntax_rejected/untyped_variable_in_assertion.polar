test "x" {
  assert p(x) iff x in ["a"];
}
