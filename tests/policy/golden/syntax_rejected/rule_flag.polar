@internal p(x) if q(x);
resource Repo {
  @fast "a" if "b";
}
