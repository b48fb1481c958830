# What a plan allows is part of the policy; what is used is data.
actor User {}

resource Plan {}
resource Feature {}

resource Organization {
  roles = ["member"];
  permissions = ["create_repository", "use_reports"];
}

plan_quota(Plan{"pro"}, Feature{"repository"}, 10);
plan_quota(Plan{"basic"}, Feature{"repository"}, 1);
plan_has(Plan{"pro"}, Feature{"reports"});

has_permission(user: User, "create_repository", org: Organization) if
  has_role(user, "member", org) and
  subscribed(org, plan) and
  plan_quota(plan, Feature{"repository"}, quota) and
  quota_used(org, Feature{"repository"}, used) and
  used < quota;

has_permission(user: User, "use_reports", org: Organization) if
  has_role(user, "member", org) and
  subscribed(org, plan) and
  plan_has(plan, Feature{"reports"});

declare subscribed(Organization, Plan);

test "quotas" {
  setup {
    has_role(User{"ann"}, "member", Organization{"small"});
    has_role(User{"ann"}, "member", Organization{"large"});
    has_role(User{"ann"}, "member", Organization{"full"});
    subscribed(Organization{"small"}, Plan{"basic"});
    subscribed(Organization{"large"}, Plan{"pro"});
    subscribed(Organization{"full"}, Plan{"basic"});
    quota_used(Organization{"small"}, Feature{"repository"}, 0);
    quota_used(Organization{"large"}, Feature{"repository"}, 9);
    quota_used(Organization{"full"}, Feature{"repository"}, 1);
  }
  assert allow(User{"ann"}, "create_repository", org: Organization) iff org in [Organization{"small"}, Organization{"large"}];
  assert_not allow(User{"ann"}, "create_repository", Organization{"full"});
  assert allow(User{"ann"}, "use_reports", org: Organization) iff org in [Organization{"large"}];
  assert_not allow(User{"bob"}, "use_reports", Organization{"large"});
  assert plan_quota(Plan{"pro"}, Feature{"repository"}, quota: Integer) iff quota in [10];
}
