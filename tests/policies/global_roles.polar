# Roles that hold everywhere: has_role and allow with two arguments.
actor User {}

global {
  roles = ["support", "superuser"];
  permissions = ["create_tenant", "read_audit_log"];
  "support" if "superuser";
  "read_audit_log" if "support";
  "create_tenant" if "superuser";
}

resource Tenant {
  roles = ["member"];
  permissions = ["read", "delete"];
  "read" if "member" or global "support";
  "delete" if global "superuser";
  "member" if global "create_tenant" and is_trial(resource);
}

test fixture staff {
  has_role(User{"sam"}, "support");
  has_role(User{"root"}, "superuser");
}

test "global roles hold for every tenant" {
  setup { fixture staff; has_role(User{"mia"}, "member", Tenant{"a"}); is_trial(Tenant{"t"}); }
  assert allow(User{"sam"}, "read", Tenant{"a"});
  assert allow(User{"sam"}, "read", Tenant{"never mentioned"});
  assert_not allow(User{"sam"}, "delete", Tenant{"a"});
  assert allow(User{"root"}, "delete", Tenant{"never mentioned"});
  assert allow(User{"mia"}, "read", Tenant{"a"});
  assert_not allow(User{"mia"}, "read", Tenant{"b"});
  assert has_role(User{"root"}, "member", Tenant{"t"});
  assert_not has_role(User{"sam"}, "member", Tenant{"t"});
}

test "what needs no resource" {
  setup { fixture staff; }
  assert allow(User{"root"}, "create_tenant");
  assert allow(User{"sam"}, "read_audit_log");
  assert_not allow(User{"sam"}, "create_tenant");
  assert allow(user: User, "read_audit_log") iff user in [User{"sam"}, User{"root"}];
}
