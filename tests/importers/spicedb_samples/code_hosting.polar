actor user {}

resource team {
  roles = ["maintainer", "member"];
  permissions = ["membership", "manage"];
  relations = { parent: team };

  "membership" if "maintainer";
  "membership" if "member";
  "manage" if "maintainer";
  "manage" if "manage" on "parent";
}

resource organization {
  roles = ["owner", "member", "billing_manager", "suspended"];
  permissions = ["administer", "participate", "pay"];
  relations = { member_team: team };

  "member" if "membership" on "member_team";
  "administer" if "owner" and not "suspended";
  "participate" if ("member" or "owner") and not "suspended";
  "pay" if "billing_manager";
  "pay" if "owner";
}

resource repository {
  roles = ["reader", "triager", "writer", "maintainer", "admin"];
  permissions = ["administer", "maintain", "push", "triage", "pull"];
  relations = {
    organization: organization,
    reader_team: team,
    triager_team: team,
    writer_team: team,
    maintainer_team: team,
    admin_team: team,
  };

  # The roles, from the least to the most.
  "reader" if "membership" on "reader_team";
  "triager" if "membership" on "triager_team";
  "writer" if "membership" on "writer_team";
  "maintainer" if "membership" on "maintainer_team";
  "admin" if "membership" on "admin_team";
  "administer" if "admin";
  "administer" if "administer" on "organization";
  "maintain" if "maintainer";
  "maintain" if "administer";
  "push" if "writer";
  "push" if "maintain";
  "triage" if "triager";
  "triage" if "push";
  "pull" if "reader";
  "pull" if "triage";
  "pull" if "participate" on "organization";
}

resource issue {
  roles = ["author", "assignee"];
  permissions = ["close", "read"];
  relations = { repository: repository };

  "close" if "author";
  "close" if "assignee";
  "close" if "triage" on "repository";
  "read" if "close";
  "read" if "pull" on "repository";
}

# Roles can be asked for as permissions can: /authorize answers for both.
allow(actor: Actor, action: String, resource: Resource) if has_permission(actor, action, resource);
allow(actor: Actor, role: String, resource: Resource) if has_role(actor, role, resource);

test fixture tuples {
  has_role(user{"olga"}, "owner", organization{"acme"});
  has_role(user{"mel"}, "member", organization{"acme"});
  has_relation(organization{"acme"}, "member_team", team{"core"});
  has_role(user{"bill"}, "billing_manager", organization{"acme"});
  has_role(user{"max"}, "maintainer", team{"core"});
  has_role(user{"cora"}, "member", team{"core"});
  has_relation(team{"docs"}, "parent", team{"core"});
  has_role(user{"dora"}, "member", team{"docs"});
  has_relation(repository{"anvil"}, "organization", organization{"acme"});
  has_relation(repository{"anvil"}, "writer_team", team{"docs"});
  has_role(user{"adam"}, "admin", repository{"anvil"});
  has_relation(issue{"12"}, "repository", repository{"anvil"});
  has_role(user{"ivan"}, "author", issue{"12"});
}

test "code_hosting" {
  setup {
    fixture tuples;
  }
  assert allow(user{"mel"}, "pull", repository{"anvil"});
  assert allow(user{"cora"}, "pull", repository{"anvil"});
  assert allow(user{"dora"}, "push", repository{"anvil"});
  assert allow(user{"olga"}, "administer", repository{"anvil"});
  assert allow(user{"adam"}, "push", repository{"anvil"});
  assert allow(user{"max"}, "manage", team{"docs"});
  assert allow(user{"ivan"}, "close", issue{"12"});
  assert allow(user{"dora"}, "close", issue{"12"});
  assert allow(user{"mel"}, "read", issue{"12"});
  assert allow(user{"bill"}, "pay", organization{"acme"});
  assert_not allow(user{"mel"}, "push", repository{"anvil"});
  assert_not allow(user{"adam2"}, "administer", repository{"anvil"});
  assert_not allow(user{"bill"}, "pull", repository{"anvil"});
  assert_not allow(user{"mel"}, "close", issue{"12"});
  assert_not allow(user{"cora"}, "manage", team{"core"});
  assert allow(each: user, "push", repository{"anvil"}) iff
    each in [user{"adam"}, user{"dora"}, user{"olga"}];
}
