# A code host: organizations, teams, repositories and issues, much as you know them from the big ones.
#
# It shows roles that include each other (RBAC), roles that come down from an organization (multi-tenancy), teams in
# teams (groups), a role that every member has by default, and what is open to everybody.

# People sign in as a User. An actor needs no permissions of its own.
actor User {}

# A team is an actor as well: whatever a team is given, its members have. See the two rules about teams below.
actor Team {}

# Roles of the whole site, for the people who run it.
global {
  roles = ["staff"];
}

# Each organization is a tenant: a role in one says nothing about any other.
resource Organization {
  roles = ["member", "billing_manager", "owner"];
  permissions = ["view", "invite", "see_invoices", "create_repository", "rename", "delete"];

  # Read a line from right to left: owners are members, too. That is all there is to a hierarchy of roles.
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

  # Each role includes the one before it.
  "reader" if "triager";
  "triager" if "writer";
  "writer" if "maintainer";
  "maintainer" if "admin";

  # Through a relation: who owns the organization administers each of its repositories.
  "admin" if "owner" on "organization";

  # Support may look, and no more.
  "reader" if global "staff";

  "read" if "reader";
  "comment" if "reader";
  "label" if "triager" and not is_archived(resource);
  "push" if "writer" and not is_archived(resource);
  "merge" if "maintainer" and not is_archived(resource);
  "change_settings" if "admin";
  "delete" if "admin";
}

# An issue has no roles that anybody is given: all comes from its repository, or from having opened it.
resource Issue {
  roles = ["author"];
  permissions = ["read", "comment", "edit", "close"];
  relations = { repository: Repository, opened_by: User };

  # A relation to a person stands where a role would.
  "author" if "opened_by";

  "read" if "read" on "repository";
  "comment" if "comment" on "repository";
  "edit" if "author" and "read" on "repository";
  "close" if "author" and "read" on "repository";
  "edit" if "triager" on "repository";
  "close" if "triager" on "repository";
}

# ---- teams --------------------------------------------------------------------------------------------------------

# Who is in a team has its roles.
has_role(member: Actor, role: String, repository: Repository) if
  team matches Team and
  in_team(member, team) and
  has_role(team, role, repository);

# Teams may be in teams, as deep as you like. A circle does no harm.
in_team(member: Actor, team: Team) if
  between matches Team and
  in_team(member, between) and
  in_team(between, team);

# ---- what depends on facts of the organization or of the repository -----------------------------------------------

# The base role is data, so that each organization decides for itself: every member has it in every repository, except
# in those that are marked as confidential.
has_role(user: User, role: String, repository: Repository) if
  organization matches Organization and
  has_relation(repository, "organization", organization) and
  has_base_role(organization, role) and
  has_role(user, "member", organization) and
  not is_confidential(repository);

# `_` is everybody: each user may read and comment on what is public. Nothing needs to be stored for each of them.
has_permission(_: User, "read", repository: Repository) if is_public(repository);
has_permission(_: User, "comment", repository: Repository) if is_public(repository) and not is_archived(repository);

# ---- tests --------------------------------------------------------------------------------------------------------
# They run whenever a policy is loaded, over their own facts: a policy whose tests fail is not loaded.

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

test "one organization is nothing to another" {
  setup {
    fixture acme;
    has_relation(Repository{"rocket"}, "organization", Organization{"globex"});
  }
  assert_not allow(User{"olga"}, "view", Organization{"globex"});
  assert allow(User{"olga"}, "delete", repository: Repository)
    iff repository in [Repository{"anvil"}, Repository{"vault"}];
}

test "the base role reaches all but confidential repositories" {
  setup { fixture acme; }
  assert allow(User{"mira"}, "read", repository: Repository) iff repository in [Repository{"anvil"}];
  assert_not allow(User{"mira"}, "push", Repository{"anvil"});
  assert_not allow(User{"bill"}, "read", Repository{"anvil"});
}

test "each role in a repository includes the one before it" {
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

test "a team's roles are its members', through any number of teams" {
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

test "public repositories are read by everybody, archived ones changed by nobody" {
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

test "an issue is edited by who opened it and by triagers" {
  setup {
    fixture acme;
    has_role(User{"tim"}, "triager", Repository{"anvil"});
  }
  assert allow(user: User, "close", Issue{"anvil#1"}) iff user in [User{"mira"}, User{"tim"}, User{"olga"}];
  assert allow(User{"mira"}, action: String, Issue{"anvil#1"}) iff action in ["read", "comment", "edit", "close"];
  assert_not allow(User{"bill"}, "read", Issue{"anvil#1"});
}

test "who opened an issue loses it with the repository" {
  setup {
    has_relation(Issue{"vault#1"}, "repository", Repository{"vault"});
    has_relation(Issue{"vault#1"}, "opened_by", User{"gone"});
  }
  assert_not allow(User{"gone"}, "edit", Issue{"vault#1"});
}

test "staff looks into everything and changes nothing" {
  setup {
    fixture acme;
    has_role(User{"sue"}, "staff");
  }
  assert allow(User{"sue"}, action: String, Repository{"vault"}) iff action in ["read", "comment"];
  assert_not allow(User{"sue"}, "view", Organization{"acme"});
}
