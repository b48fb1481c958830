test owners {
  assert p(1);
}
