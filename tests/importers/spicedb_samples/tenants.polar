# Tenants of one platform, with plans, networks and help from the outside.
actor platform_staff {}

actor tenant_user {}

resource platform_operations {
  roles = ["administrator"];
}

# "helper": Support looks in for a while, and is gone by itself.
resource tenant_account {
  roles = ["admin", "member", "suspended", "helper"];
  permissions = ["administer", "enter", "see_billing", "possibly_suspended"];
  relations = { operations: platform_operations };

  "member" if has_role_if(actor, "member", resource, when) and from_network(when);
  "suspended" if has_role_if(actor, "suspended", resource, when) and in_office_hours(when);
  "administer" if "admin";
  "administer" if "administrator" on "operations";
  "enter" if ("member" or "admin") and not "possibly_suspended";
  "enter" if "helper";
  "see_billing" if "admin";

  # whoever may be suspended, for all that is known
  "possibly_suspended" if "suspended";
  "possibly_suspended" if
    has_role_if(actor, "suspended", resource, when) and
    when matches in_office_hours and
    not fails(when);
}

resource tenant_project {
  roles = ["manager", "contributor"];
  permissions = ["manage", "add_file", "view", "release"];
  relations = { account: tenant_account, approver: tenant_committee };

  "contributor" if has_role_if(actor, "contributor", resource, when) and within_plan(when);
  "manage" if "manager";
  "manage" if "administer" on "account";
  "add_file" if ("contributor" or "manager") and "enter" on "account";
  "view" if "contributor";
  "view" if "manage";
  "view" if "enter" on "account";
  "release" if
    tenant_committee matches tenant_committee and
    has_relation(resource, "approver", tenant_committee) and
    not (
      other_tenant_committee matches tenant_committee and
      has_relation(resource, "approver", other_tenant_committee) and
      not has_role(actor, "member", other_tenant_committee)
    );
}

resource tenant_committee {
  roles = ["member"];
}

# From where requests may come
# ip.in_cidr(network)
resource from_network {}

from_network(when: from_network) if
  value_of(when, "ip", ip) and
  value_of(when, "network first", network_first) and
  ip >= network_first and
  value_of(when, "network last", network_last) and
  ip <= network_last;

# While the plan has room left
# tier == "unlimited" || used < allowed
resource within_plan {}

within_plan(when: within_plan) if value_of(when, "tier", tier) and tier = "unlimited";

within_plan(when: within_plan) if
  value_of(when, "used", used) and
  value_of(when, "allowed", allowed) and
  used < allowed;

# hour >= 8 && hour < 18 && !(weekday in ["saturday", "sunday"])
resource in_office_hours {}

in_office_hours(when: in_office_hours) if
  value_of(when, "hour", hour) and
  hour >= 8 and
  hour < 18 and
  value_of(when, "weekday", weekday) and
  weekday matches String and
  not weekday in ["saturday", "sunday"];

fails(when: in_office_hours) if value_of(when, "hour", hour) and hour < 8;

fails(when: in_office_hours) if value_of(when, "hour", hour) and hour >= 18;

fails(when: in_office_hours) if
  value_of(when, "weekday", weekday) and
  weekday in ["saturday", "sunday"];

# A value that a condition asks for: the tuple's own, or else the request's.
value_of(when: Resource, name: String, value) if parameter(when, name, value);
value_of(when: Resource, name: String, value) if
  context(name, value) and
  not parameter(when, name, _);

# Roles can be asked for as permissions can: /authorize answers for both.
allow(actor: Actor, action: String, resource: Resource) if has_permission(actor, action, resource);
allow(actor: Actor, role: String, resource: Resource) if has_role(actor, role, resource);

test fixture tuples {
  has_role(platform_staff{"sam"}, "administrator", platform_operations{"main"});
  has_relation(tenant_account{"acme"}, "operations", platform_operations{"main"});
  has_role(tenant_user{"ann"}, "admin", tenant_account{"acme"});
  has_role(tenant_user{"ben"}, "member", tenant_account{"acme"});
  has_role_if(
    tenant_user{"cat"},
    "member",
    tenant_account{"acme"},
    from_network{"network=10.1.0.0/16"}
  );
  parameter(from_network{"network=10.1.0.0/16"}, "network first", 167837696);
  parameter(from_network{"network=10.1.0.0/16"}, "network last", 167903231);
  has_role_if(
    tenant_user{"ben"},
    "suspended",
    tenant_account{"acme"},
    in_office_hours{"weekday=sunday"}
  );
  parameter(in_office_hours{"weekday=sunday"}, "weekday", "sunday");
  has_role(platform_staff{"helen"}, "helper", tenant_account{"acme"});
  has_relation(tenant_project{"site"}, "account", tenant_account{"acme"});
  has_role_if(
    tenant_user{"ben"},
    "contributor",
    tenant_project{"site"},
    within_plan{"allowed=10 tier=small"}
  );
  parameter(within_plan{"allowed=10 tier=small"}, "allowed", 10);
  parameter(within_plan{"allowed=10 tier=small"}, "tier", "small");
  has_role_if(
    tenant_user{"cat"},
    "contributor",
    tenant_project{"site"},
    within_plan{"tier=unlimited"}
  );
  parameter(within_plan{"tier=unlimited"}, "tier", "unlimited");
  has_relation(tenant_project{"site"}, "approver", tenant_committee{"legal"});
  has_relation(tenant_project{"site"}, "approver", tenant_committee{"brand"});
  has_role(tenant_user{"ann"}, "member", tenant_committee{"legal"});
  has_role(tenant_user{"ann"}, "member", tenant_committee{"brand"});
  has_role(tenant_user{"ben"}, "member", tenant_committee{"brand"});
}

test "tenants" {
  setup {
    fixture tuples;
  }
  assert allow(platform_staff{"sam"}, "administer", tenant_account{"acme"});
  assert allow(platform_staff{"helen"}, "enter", tenant_account{"acme"});
  assert allow(tenant_user{"ann"}, "enter", tenant_account{"acme"});
  assert allow(tenant_user{"ben"}, "enter", tenant_account{"acme"});
  assert allow(tenant_user{"cat"}, "view", tenant_project{"site"});
  assert allow(tenant_user{"ann"}, "release", tenant_project{"site"});
  assert_not allow(platform_staff{"past"}, "enter", tenant_account{"acme"});
  assert_not allow(tenant_user{"ben"}, "release", tenant_project{"site"});
  assert_not allow(tenant_user{"cat"}, "enter", tenant_account{"acme"});
  assert_not allow(tenant_user{"ben"}, "add_file", tenant_project{"site"});
}

test "tenants: ip 167838211" {
  setup {
    fixture tuples;
    context("ip", 167838211);
  }
  assert allow(tenant_user{"cat"}, "enter", tenant_account{"acme"});
  assert allow(tenant_user{"cat"}, "add_file", tenant_project{"site"});
}

test "tenants: used 9" {
  setup {
    fixture tuples;
    context("used", 9);
  }
  assert allow(tenant_user{"ben"}, "view", tenant_project{"site"});
}

test "tenants: used 3" {
  setup {
    fixture tuples;
    context("used", 3);
  }
  assert allow(tenant_user{"ben"}, "add_file", tenant_project{"site"});
}

test "tenants: ip 167903233" {
  setup {
    fixture tuples;
    context("ip", 167903233);
  }
  assert_not allow(tenant_user{"cat"}, "enter", tenant_account{"acme"});
}

test "tenants: used 10" {
  setup {
    fixture tuples;
    context("used", 10);
  }
  assert_not allow(tenant_user{"ben"}, "add_file", tenant_project{"site"});
}
