# Groups as actors, and groups in groups.
actor User {}
actor Group {}

resource Repository {
  roles = ["reader", "admin"];
  permissions = ["read", "delete"];
  "reader" if "admin";
  "read" if "reader";
  "delete" if "admin";
}

has_role(user: Actor, role: String, repo: Repository) if
  group matches Group and
  has_group(user, group) and
  has_role(group, role, repo);

has_group(member: Actor, group: Group) if
  between matches Group and
  has_group(member, between) and
  has_group(between, group);

test "roles come through any number of groups" {
  setup {
    has_group(User{"ann"}, Group{"backend"});
    has_group(Group{"backend"}, Group{"engineering"});
    has_group(Group{"engineering"}, Group{"everyone"});
    has_role(Group{"everyone"}, "reader", Repository{"docs"});
    has_role(Group{"engineering"}, "admin", Repository{"code"});
  }
  assert allow(User{"ann"}, "read", repo: Repository) iff repo in [Repository{"docs"}, Repository{"code"}];
  assert allow(User{"ann"}, "delete", Repository{"code"});
  assert_not allow(User{"ann"}, "delete", Repository{"docs"});
  assert allow(Group{"backend"}, "delete", Repository{"code"});
  assert_not allow(Group{"everyone"}, "delete", Repository{"code"});
  assert has_group(User{"ann"}, group: Group) iff group in [Group{"backend"}, Group{"engineering"}, Group{"everyone"}];
}

test "groups in a circle" {
  setup {
    has_group(User{"ann"}, Group{"a"});
    has_group(Group{"a"}, Group{"b"});
    has_group(Group{"b"}, Group{"a"});
    has_role(Group{"b"}, "reader", Repository{"docs"});
  }
  assert allow(User{"ann"}, "read", Repository{"docs"});
  assert_not allow(User{"ann"}, "delete", Repository{"docs"});
  assert_not allow(User{"bob"}, "read", Repository{"docs"});
}
