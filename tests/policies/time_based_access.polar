# Grants that end, and grants that have not begun.
actor User {}

resource Repository {
  roles = ["reader"];
  permissions = ["read"];
  "read" if "reader";
}

has_role(user: User, role: String, repo: Repository) if
  has_role_until(user, role, repo, expiry) and
  @current_unix_time < expiry;

has_permission(user: User, "read", repo: Repository) if
  from matches Integer and
  to matches Integer and
  may_read_between(user, repo, from, to) and
  from <= @current_unix_time and @current_unix_time <= to;

test "expiry" {
  setup {
    has_role_until(User{"ann"}, "reader", Repository{"r"}, 33333333333);
    has_role_until(User{"bob"}, "reader", Repository{"r"}, 1000000000);
    may_read_between(User{"cat"}, Repository{"r"}, 0, 33333333333);
    may_read_between(User{"dan"}, Repository{"r"}, 33333333333, 44444444444);
  }
  assert allow(user: User, "read", Repository{"r"}) iff user in [User{"ann"}, User{"cat"}];
  assert_not allow(User{"bob"}, "read", Repository{"r"});
  assert_not allow(User{"dan"}, "read", Repository{"r"});
}
