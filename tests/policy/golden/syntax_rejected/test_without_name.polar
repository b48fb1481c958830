test "" {
  assert p(1);
}
