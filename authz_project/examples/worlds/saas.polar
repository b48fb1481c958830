# A product for companies, its tenants: projects and tasks, plans with limits, roles that tenants define themselves, and
# support staff who can impersonate customers.
#
# Shows multi-tenancy, custom roles, quotas and features of a plan, impersonation, and denial.

actor User {
  permissions = ["impersonate"];

  # Users are resources here, too: support can act as them, unless they have refused.
  "impersonate" if global "support" and not refuses_support(resource);
}

global {
  roles = ["support", "operator"];
  permissions = ["see_all_tenants"];

  "see_all_tenants" if "operator";
  "see_all_tenants" if "support";
}

resource Tenant {
  roles = ["member", "manager", "owner"];
  permissions = ["view", "invite", "define_roles", "create_project", "export", "use_api", "bill", "close"];

  "member" if "manager";
  "manager" if "owner";

  "view" if "member";
  "invite" if "manager";
  "define_roles" if "owner";
  "bill" if "owner";
  "close" if "owner";
  "view" if global "operator";

  # `create_project`, `export` and `use_api` depend on the plan: see below.
}

resource Project {
  roles = ["viewer", "contributor", "lead"];
  permissions = ["view", "report", "add_task", "assign", "archive"];
  relations = { tenant: Tenant };

  "viewer" if "contributor";
  "contributor" if "lead";
  "lead" if "manager" on "tenant";

  "view" if "viewer";
  "add_task" if "contributor";
  "assign" if "lead";
  "report" if "lead";
  "archive" if "lead";
}

resource Task {
  permissions = ["view", "edit", "finish"];
  relations = { project: Project, assignee: User };

  "view" if "view" on "project";
  "edit" if "add_task" on "project";
  "finish" if "assign" on "project";
  "finish" if "assignee" and "view" on "project";
}

# ---- custom roles -------------------------------------------------------------------------------------------------

# Tenants define roles of their own. Such a role is a resource, which takes the place of a role name. What it grants is
# stored as facts. Note the two relations: a role of one tenant must not apply to another.
resource Role {
  permissions = ["edit"];
  relations = { tenant: Tenant };

  "edit" if "define_roles" on "tenant";
}

has_permission(user: User, action: String, project: Project) if
  tenant matches Tenant and
  role matches Role and
  has_relation(project, "tenant", tenant) and
  has_relation(role, "tenant", tenant) and
  has_role(user, role, tenant) and
  grants(role, action);

# ---- plans --------------------------------------------------------------------------------------------------------

# The features of a plan are part of the policy, and change with a deployment. The plan of each tenant and its usage are
# data, and change all the time.
resource Plan {}

plan_limit(Plan{"free"}, "projects", 3);
plan_limit(Plan{"team"}, "projects", 10);
plan_limit(Plan{"enterprise"}, "projects", 1000);
plan_has(Plan{"team"}, "export");
plan_has(Plan{"enterprise"}, "export");
plan_has(Plan{"enterprise"}, "use_api");

# Limits compare two numbers. A tenant without a usage count cannot create anything: unknown means denied.
has_permission(user: User, "create_project", tenant: Tenant) if
  plan matches Plan and
  limit matches Integer and
  used matches Integer and
  has_role(user, "manager", tenant) and
  is_on_plan(tenant, plan) and
  plan_limit(plan, "projects", limit) and
  uses(tenant, "projects", used) and
  used < limit;

has_permission(user: User, feature: String, tenant: Tenant) if
  plan matches Plan and
  has_role(user, "member", tenant) and
  is_on_plan(tenant, plan) and
  plan_has(plan, feature);

# ---- allow and deny -----------------------------------------------------------------------------------------------

# A policy with its own `allow` has no default one. Denials belong here: suspended users have no access, whatever their
# roles.
allow(actor: Actor, action: String, resource: Resource) if
  has_permission(actor, action, resource) and
  not is_suspended(actor);

# Impersonation: support can do what the customer can do, except spend money or close the account. A user who is
# impersonated cannot impersonate others.
allow(actor: User, action: String, resource: Resource) if
  user matches User and
  acts_as(actor, user) and
  has_permission(actor, "impersonate", user) and
  not is_suspended(actor) and
  has_permission(user, action, resource) and
  not is_personal(action);

is_personal("bill");
is_personal("close");
is_personal("impersonate");

# An action without a resource.
allow(actor: Actor, action: String) if has_permission(actor, action) and not is_suspended(actor);

# ---- tests --------------------------------------------------------------------------------------------------------

test fixture acme {
  has_role(User{"olga"}, "owner", Tenant{"acme"});
  has_role(User{"max"}, "manager", Tenant{"acme"});
  has_role(User{"mia"}, "member", Tenant{"acme"});
  is_on_plan(Tenant{"acme"}, Plan{"team"});
  uses(Tenant{"acme"}, "projects", 9);
  has_relation(Project{"moon"}, "tenant", Tenant{"acme"});
  has_relation(Task{"moon-1"}, "project", Project{"moon"});
  has_relation(Task{"moon-1"}, "assignee", User{"mia"});
}

test "roles in a tenant" {
  setup { fixture acme; }
  assert allow(User{"olga"}, action: String, Tenant{"acme"})
    iff action in ["view", "invite", "define_roles", "create_project", "export", "bill", "close"];
  assert allow(User{"max"}, action: String, Tenant{"acme"})
    iff action in ["view", "invite", "create_project", "export"];
  assert allow(User{"mia"}, action: String, Tenant{"acme"}) iff action in ["view", "export"];
  assert_not allow(User{"olga"}, "view", Tenant{"globex"});
}

test "projects and tasks" {
  setup {
    fixture acme;
    has_role(User{"mia"}, "viewer", Project{"moon"});
    has_role(User{"cy"}, "contributor", Project{"moon"});
  }
  assert allow(User{"max"}, action: String, Project{"moon"})
    iff action in ["view", "report", "add_task", "assign", "archive"];
  assert allow(User{"cy"}, action: String, Project{"moon"}) iff action in ["view", "add_task"];
  assert allow(User{"mia"}, action: String, Task{"moon-1"}) iff action in ["view", "finish"];
  assert allow(User{"cy"}, action: String, Task{"moon-1"}) iff action in ["view", "edit"];
  assert allow(User{"max"}, action: String, Task{"moon-1"}) iff action in ["view", "edit", "finish"];
}

test "a tenant's custom role applies only to that tenant" {
  setup {
    fixture acme;
    has_relation(Role{"acme-auditor"}, "tenant", Tenant{"acme"});
    grants(Role{"acme-auditor"}, "view");
    grants(Role{"acme-auditor"}, "report");
    has_role(User{"aud"}, Role{"acme-auditor"}, Tenant{"acme"});
    has_role(User{"aud"}, Role{"acme-auditor"}, Tenant{"globex"});
    has_relation(Project{"sun"}, "tenant", Tenant{"globex"});
  }
  assert allow(User{"aud"}, action: String, Project{"moon"}) iff action in ["view", "report"];
  assert_not allow(User{"aud"}, "view", Project{"sun"});
  assert allow(User{"olga"}, "edit", Role{"acme-auditor"});
  assert_not allow(User{"max"}, "edit", Role{"acme-auditor"});
}

test "the limits of plans" {
  setup {
    has_role(User{"max"}, "manager", Tenant{"small"});
    has_role(User{"max"}, "manager", Tenant{"full"});
    has_role(User{"max"}, "manager", Tenant{"large"});
    has_role(User{"max"}, "manager", Tenant{"uncounted"});
    is_on_plan(Tenant{"small"}, Plan{"free"});
    is_on_plan(Tenant{"full"}, Plan{"team"});
    is_on_plan(Tenant{"large"}, Plan{"enterprise"});
    is_on_plan(Tenant{"uncounted"}, Plan{"enterprise"});
    uses(Tenant{"small"}, "projects", 2);
    uses(Tenant{"full"}, "projects", 10);
    uses(Tenant{"large"}, "projects", 400);
  }
  assert allow(User{"max"}, "create_project", tenant: Tenant) iff tenant in [Tenant{"small"}, Tenant{"large"}];
  assert allow(User{"max"}, "use_api", tenant: Tenant) iff tenant in [Tenant{"large"}, Tenant{"uncounted"}];
  assert_not allow(User{"max"}, "export", Tenant{"small"});
}

test "support acts as a customer" {
  setup {
    fixture acme;
    has_role(User{"sam"}, "support");
    acts_as(User{"sam"}, User{"olga"});
    acts_as(User{"eve"}, User{"olga"});
  }
  assert allow(User{"sam"}, action: String, Tenant{"acme"})
    iff action in ["view", "invite", "define_roles", "create_project", "export"];
  assert_not allow(User{"sam"}, "bill", Tenant{"acme"});
  assert_not allow(User{"eve"}, "view", Tenant{"acme"});
}

test "support cannot act as users who refuse" {
  setup {
    fixture acme;
    has_role(User{"sam"}, "support");
    acts_as(User{"sam"}, User{"olga"});
    refuses_support(User{"olga"});
  }
  assert_not allow(User{"sam"}, "view", Tenant{"acme"});
}

test "impersonation cannot be chained" {
  setup {
    fixture acme;
    has_role(User{"sam"}, "support");
    has_role(User{"sue"}, "support");
    acts_as(User{"sam"}, User{"sue"});
    acts_as(User{"sue"}, User{"olga"});
  }
  assert_not allow(User{"sam"}, "view", Tenant{"acme"});
}

test "suspended users have no access" {
  setup {
    fixture acme;
    has_role(User{"op"}, "operator");
    has_role(User{"sam"}, "support");
    acts_as(User{"sam"}, User{"max"});
    is_suspended(User{"olga"});
    is_suspended(User{"sam"});
  }
  assert_not allow(User{"olga"}, "view", Tenant{"acme"});
  assert_not allow(User{"sam"}, "view", Tenant{"acme"});
  assert_not allow(User{"sam"}, "see_all_tenants");
  assert allow(User{"op"}, "view", Tenant{"acme"});
  assert allow(User{"op"}, "see_all_tenants");
}

test "support can list tenants, but not see into them" {
  setup {
    fixture acme;
    has_role(User{"sam"}, "support");
  }
  assert allow(User{"sam"}, "see_all_tenants");
  assert_not allow(User{"sam"}, "view", Tenant{"acme"});
}
