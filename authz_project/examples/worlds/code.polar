# A code hosting service with organizations, teams, repositories and issues.
#
# Shows role hierarchies (RBAC), roles inherited from an organization (multi-tenancy), nested teams (groups), a default
# role for all members, and public resources.

# Users sign in. An actor needs no permissions of its own.
actor User {}

# A team is an actor, too: its members have all roles of the team. See the two rules about teams below.
actor Team {}

# Site-wide roles, for the operators.
global {
  roles = ["staff"];
}

# Each organization is a tenant: a role in one organization grants nothing in another.
resource Organization {
  roles = ["member", "billing_manager", "owner"];
  permissions = ["view", "invite", "see_invoices", "create_repository", "rename", "delete"];

  # A role hierarchy: every owner is also a member.
  "member" if "owner";
  "billing_manager" if "owner";

  "view" if "member";
  "create_repository" if "member";
  "see_invoices" if "billing_manager";
  "invite" if "owner";
  "rename" if "owner";
  "delete" if "owner";
}

resource Repository {
  roles = ["reader", "triager", "writer", "maintainer", "admin"];
  permissions = ["read", "comment", "label", "push", "merge", "change_settings", "delete"];
  relations = { organization: Organization };

  # Each role includes the previous one.
  "reader" if "triager";
  "triager" if "writer";
  "writer" if "maintainer";
  "maintainer" if "admin";

  # Through a relation: owners of the organization administer all of its repositories.
  "admin" if "owner" on "organization";

  # Staff can read every repository.
  "reader" if global "staff";

  "read" if "reader";
  "comment" if "reader";
  "label" if "triager" and not is_archived(resource);
  "push" if "writer" and not is_archived(resource);
  "merge" if "maintainer" and not is_archived(resource);
  "change_settings" if "admin";
  "delete" if "admin";
}

# Issues have no roles of their own: permissions come from the repository, or from having opened the issue.
resource Issue {
  roles = ["author"];
  permissions = ["read", "comment", "edit", "close"];
  relations = { repository: Repository, opened_by: User };

  # A relation to a user can be used like a role.
  "author" if "opened_by";

  "read" if "read" on "repository";
  "comment" if "comment" on "repository";
  "edit" if "author" and "read" on "repository";
  "close" if "author" and "read" on "repository";
  "edit" if "triager" on "repository";
  "close" if "triager" on "repository";
}

# ---- teams --------------------------------------------------------------------------------------------------------

# Members of a team have its roles.
has_role(member: Actor, role: String, repository: Repository) if
  team matches Team and
  in_team(member, team) and
  has_role(team, role, repository);

# Teams can be nested to any depth. Cycles are harmless.
in_team(member: Actor, team: Team) if
  between matches Team and
  in_team(member, between) and
  in_team(between, team);

# ---- base roles and public repositories ----------------------------------------------------------------------------

# The base role is a fact, so each organization chooses its own. Every member has it in every repository, except in
# confidential ones.
has_role(user: User, role: String, repository: Repository) if
  organization matches Organization and
  has_relation(repository, "organization", organization) and
  has_base_role(organization, role) and
  has_role(user, "member", organization) and
  not is_confidential(repository);

# `_` matches every user: everyone can read and comment on public repositories, without a fact for each user.
has_permission(_: User, "read", repository: Repository) if is_public(repository);
has_permission(_: User, "comment", repository: Repository) if is_public(repository) and not is_archived(repository);

# ---- tests --------------------------------------------------------------------------------------------------------
# Tests run with their own facts whenever the policy is published. If a test fails, the policy is not published.

test fixture acme {
  has_role(User{"olga"}, "owner", Organization{"acme"});
  has_role(User{"mira"}, "member", Organization{"acme"});
  has_role(User{"bill"}, "billing_manager", Organization{"acme"});
  has_base_role(Organization{"acme"}, "reader");
  has_relation(Repository{"anvil"}, "organization", Organization{"acme"});
  has_relation(Repository{"vault"}, "organization", Organization{"acme"});
  is_confidential(Repository{"vault"});
  has_relation(Issue{"anvil#1"}, "repository", Repository{"anvil"});
  has_relation(Issue{"anvil#1"}, "opened_by", User{"mira"});
}

test "roles of an organization" {
  setup { fixture acme; }
  assert allow(User{"olga"}, action: String, Organization{"acme"})
    iff action in ["view", "invite", "see_invoices", "create_repository", "rename", "delete"];
  assert allow(User{"mira"}, action: String, Organization{"acme"}) iff action in ["view", "create_repository"];
  assert allow(User{"bill"}, action: String, Organization{"acme"}) iff action in ["see_invoices"];
}

test "organizations are isolated from each other" {
  setup {
    fixture acme;
    has_relation(Repository{"rocket"}, "organization", Organization{"globex"});
  }
  assert_not allow(User{"olga"}, "view", Organization{"globex"});
  assert allow(User{"olga"}, "delete", repository: Repository)
    iff repository in [Repository{"anvil"}, Repository{"vault"}];
}

test "the base role applies to all repositories except confidential ones" {
  setup { fixture acme; }
  assert allow(User{"mira"}, "read", repository: Repository) iff repository in [Repository{"anvil"}];
  assert_not allow(User{"mira"}, "push", Repository{"anvil"});
  assert_not allow(User{"bill"}, "read", Repository{"anvil"});
}

test "each role in a repository includes the previous one" {
  setup {
    has_role(User{"tim"}, "triager", Repository{"anvil"});
    has_role(User{"mac"}, "maintainer", Repository{"anvil"});
    has_role(User{"ada"}, "admin", Repository{"anvil"});
  }
  assert allow(User{"tim"}, action: String, Repository{"anvil"}) iff action in ["read", "comment", "label"];
  assert allow(User{"mac"}, action: String, Repository{"anvil"})
    iff action in ["read", "comment", "label", "push", "merge"];
  assert allow(User{"ada"}, action: String, Repository{"anvil"})
    iff action in ["read", "comment", "label", "push", "merge", "change_settings", "delete"];
}

test "members have the roles of their team and of its parent teams" {
  setup {
    in_team(User{"ben"}, Team{"compilers"});
    in_team(Team{"compilers"}, Team{"platform"});
    in_team(Team{"platform"}, Team{"engineering"});
    has_role(Team{"platform"}, "writer", Repository{"anvil"});
    has_role(Team{"engineering"}, "reader", Repository{"handbook"});
  }
  assert allow(User{"ben"}, "push", repository: Repository) iff repository in [Repository{"anvil"}];
  assert allow(User{"ben"}, "read", repository: Repository)
    iff repository in [Repository{"anvil"}, Repository{"handbook"}];
  assert_not allow(Team{"engineering"}, "read", Repository{"anvil"});
}

test "everyone can read public repositories, and no one can change archived ones" {
  setup {
    is_public(Repository{"site"});
    is_public(Repository{"relic"});
    is_archived(Repository{"relic"});
    has_role(User{"ada"}, "admin", Repository{"relic"});
  }
  assert allow(User{"anybody"}, action: String, Repository{"site"}) iff action in ["read", "comment"];
  assert allow(User{"anybody"}, action: String, Repository{"relic"}) iff action in ["read"];
  assert_not allow(User{"ada"}, "push", Repository{"relic"});
  assert allow(User{"ada"}, "delete", Repository{"relic"});
}

test "issues can be edited by their author and by triagers" {
  setup {
    fixture acme;
    has_role(User{"tim"}, "triager", Repository{"anvil"});
  }
  assert allow(user: User, "close", Issue{"anvil#1"}) iff user in [User{"mira"}, User{"tim"}, User{"olga"}];
  assert allow(User{"mira"}, action: String, Issue{"anvil#1"}) iff action in ["read", "comment", "edit", "close"];
  assert_not allow(User{"bill"}, "read", Issue{"anvil#1"});
}

test "authors lose access to their issues with access to the repository" {
  setup {
    has_relation(Issue{"vault#1"}, "repository", Repository{"vault"});
    has_relation(Issue{"vault#1"}, "opened_by", User{"gone"});
  }
  assert_not allow(User{"gone"}, "edit", Issue{"vault#1"});
}

test "staff can read everything and change nothing" {
  setup {
    fixture acme;
    has_role(User{"sue"}, "staff");
  }
  assert allow(User{"sue"}, action: String, Repository{"vault"}) iff action in ["read", "comment"];
  assert_not allow(User{"sue"}, "view", Organization{"acme"});
}
