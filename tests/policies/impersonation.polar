# Support staff may act as a user; `allow` is written twice, so no default is injected.
actor User {
  permissions = ["impersonate"];
  relations = { account: Account };
  "impersonate" if global "support" and not is_protected(resource);
}

global { roles = ["support"]; }

resource Account {
  roles = ["member"];
  permissions = ["read"];
  "read" if "member";
}

allow(actor: Actor, action: String, resource: Resource) if
  has_permission(actor, action, resource);

allow(actor: User, action: String, resource: Resource) if
  user matches User and
  impersonates(actor, user) and
  has_permission(actor, "impersonate", user) and
  has_permission(user, action, resource);

test "acting as somebody else" {
  setup {
    has_role(User{"sam"}, "support");
    has_role(User{"ann"}, "member", Account{"a"});
    has_role(User{"ceo"}, "member", Account{"c"});
    impersonates(User{"sam"}, User{"ann"});
    impersonates(User{"sam"}, User{"ceo"});
    impersonates(User{"eve"}, User{"ann"});
    is_protected(User{"ceo"});
  }
  assert allow(User{"sam"}, "read", Account{"a"});
  assert_not allow(User{"sam"}, "read", Account{"c"});
  assert_not allow(User{"eve"}, "read", Account{"a"});
  assert allow(User{"ann"}, "read", Account{"a"});
  assert_not has_permission(User{"sam"}, "read", Account{"a"});
}
