# Users as resources of an organisation: its admins manage them.
actor User {
  roles = ["supervisor"];
  permissions = ["deactivate", "view"];
  relations = { organization: Organization };
  "supervisor" if "admin" on "organization";
  "deactivate" if "supervisor" and not is_founder(resource);
  "view" if "member" on "organization";
}

resource Organization {
  roles = ["member", "admin"];
  "member" if "admin";
}

test "admins over users" {
  setup {
    has_relation(User{"bob"}, "organization", Organization{"acme"});
    has_relation(User{"eve"}, "organization", Organization{"acme"});
    has_role(User{"ann"}, "admin", Organization{"acme"});
    has_role(User{"eve"}, "member", Organization{"acme"});
    is_founder(User{"eve"});
  }
  assert allow(User{"ann"}, "deactivate", user: User) iff user in [User{"bob"}];
  assert allow(User{"eve"}, "view", user: User) iff user in [User{"bob"}, User{"eve"}];
  assert_not allow(User{"eve"}, "deactivate", User{"bob"});
}
