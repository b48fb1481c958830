test fixture f {
  p(1) if q(2);
}
