test fixture staff {
  has_role(User{"alice"}, "admin", Org{"acme"});
  fixture other;
}
test fixture empty {}
test "everything at once" {
  setup {
    fixture staff;
    quota(Org{"acme"}, 3, true);
  }
  assert allow(User{"alice"}, "read", Org{"acme"});
  assert_not allow(User{"bob"}, "read", Org{"acme"});
  assert allow(User{"alice"}, action: String, Org{"acme"}) iff action in ["read", "write"];
  assert allow(User{"alice"}, action: String, Org{"acme"}) iff action not in ["erase"];
  assert_not allow(user: User, "erase", Org{"acme"}) iff user in [User{"eve"}];
  assert_not allow(_: User, "fly");
}
test "without setup" { assert p(); }
test "*" { setup {} assert_not p(1); }
