test "x" {
  assert p(x: User) iff y in ["a"];
  assert p(_: User) iff _ in ["a"];
}
