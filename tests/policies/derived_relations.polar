# A relation that is worked out rather than stored, beside stored ones; one of its shapes is only declared.
actor User {}

resource Organization {
  roles = ["member"];
}

resource Repository {
  roles = ["reader"];
  permissions = ["read"];
  relations = { organization: Organization };
  "reader" if "member" on "organization";
  "read" if "reader";
}

declare has_relation(Repository, String, Organization);
declare contains(Organization, Organization);

has_relation(repo: Repository, "organization", outer: Organization) if
  inner matches Organization and
  has_relation(repo, "organization", inner) and
  contains(outer, inner);

test "through the containing organisation" {
  setup {
    has_relation(Repository{"a"}, "organization", Organization{"team"});
    contains(Organization{"division"}, Organization{"team"});
    contains(Organization{"firm"}, Organization{"division"});
    has_role(User{"ann"}, "member", Organization{"firm"});
    has_role(User{"bob"}, "member", Organization{"other"});
  }
  assert allow(User{"ann"}, "read", Repository{"a"});
  assert_not allow(User{"bob"}, "read", Repository{"a"});
  assert has_relation(Repository{"a"}, "organization", org: Organization)
    iff org in [Organization{"team"}, Organization{"division"}, Organization{"firm"}];
}
