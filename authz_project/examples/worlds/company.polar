# A company's HR and expenses: reporting lines, access to fields of employee profiles, approval of expenses, and
# delegation during absences.
#
# Shows hierarchies of any depth (managers of managers, nested departments), field-level access with a custom
# predicate, approval limits, separation of duties, and temporary delegation.

# Users are both actors and resources: they act, and others access their profiles.
actor User {
  roles = ["manager", "hr_partner"];
  permissions = ["read_profile", "edit_profile", "read_salary", "set_salary", "review", "plan_leave"];
  relations = { reports_to: User, department: Department };

  # The person that a user reports to is their manager, and so is the manager's manager, up to the top.
  "manager" if "reports_to";
  "manager" if "manager" on "reports_to";

  "hr_partner" if "hr_partner" on "department";

  "read_salary" if "manager";
  "review" if "manager";
  "plan_leave" if "manager";
  "read_salary" if "hr_partner";
  "set_salary" if "hr_partner";
  "edit_profile" if "hr_partner";
}

# Everyone can read every profile: `_` matches every user. Users have further permissions on their own profile: a
# variable that occurs twice is the same user.
has_permission(_: User, "read_profile", _: User);
has_permission(user: User, "edit_profile", user: User);
has_permission(user: User, "read_salary", user: User);

# Departments are nested. A role in a department applies to all departments within it.
resource Department {
  roles = ["hr_partner", "controller"];
  permissions = ["read_budget", "read_headcount"];
  relations = { parent: Department };

  role if role on "parent";

  "read_headcount" if "hr_partner";
  "read_headcount" if "controller";
  "read_budget" if "controller";
}

# ---- fields ---------------------------------------------------------------------------------------------------------

# A field of a profile is a resource, too. A check has four parts here: actor, action, profile and field.
# `allow_field` is an ordinary predicate: query it with /evaluate_query, or in a test.
resource Field {}

allow_field(user: User, "read", person: User, field: Field) if
  has_permission(user, "read_profile", person) and
  field in [Field{"name"}, Field{"photo"}, Field{"department"}, Field{"office"}];

allow_field(user: User, "read", person: User, field: Field) if
  has_permission(user, "read_salary", person) and
  field in [Field{"salary"}, Field{"bonus"}];

allow_field(user: User, "read", person: User, Field{"home_address"}) if has_role(user, "hr_partner", person);
allow_field(user: User, "read", user: User, Field{"home_address"});

allow_field(user: User, "write", person: User, field: Field) if
  has_permission(user, "edit_profile", person) and
  field in [Field{"photo"}, Field{"office"}, Field{"home_address"}];

# ---- expenses -------------------------------------------------------------------------------------------------------

resource Expense {
  permissions = ["read", "withdraw", "approve", "pay"];
  relations = { claimant: User, department: Department };

  "read" if "claimant";
  "withdraw" if "claimant" and not is_approved(resource);
  "read" if "controller" on "department";

  # Four-eyes principle: approvers cannot pay. See also the rules for `approve`.
  "pay" if "controller" on "department" and is_approved(resource) and not is_own(actor, resource);
}

# Managers approve expenses of their reports up to their limit, and never their own.
has_permission(user: User, "approve", expense: Expense) if
  claimant matches User and
  amount matches Integer and
  limit matches Integer and
  has_relation(expense, "claimant", claimant) and
  signs_for(user, claimant) and
  costs(expense, amount) and
  may_sign_up_to(user, limit) and
  amount <= limit and
  not is_own(user, expense) and
  not is_approved(expense);

has_permission(user: User, "read", expense: Expense) if has_permission(user, "approve", expense);

is_own(user: User, expense: Expense) if has_relation(expense, "claimant", user);

# ---- delegation -----------------------------------------------------------------------------------------------------

signs_for(user: User, claimant: User) if has_role(user, "manager", claimant);

# During an absence, a delegate approves in place of the manager, up to the delegate's own limit. The delegation ends
# by itself.
signs_for(user: User, claimant: User) if
  away matches User and
  from matches Integer and
  to matches Integer and
  stands_in_for(user, away, from, to) and
  from <= @current_unix_time and
  @current_unix_time < to and
  has_role(away, "manager", claimant);

# ---- tests --------------------------------------------------------------------------------------------------------

test fixture firm {
  has_relation(User{"ian"}, "reports_to", User{"mia"});
  has_relation(User{"mia"}, "reports_to", User{"vic"});
  has_relation(User{"vic"}, "reports_to", User{"ceo"});
  has_relation(User{"ian"}, "department", Department{"tools"});
  has_relation(Department{"tools"}, "parent", Department{"engineering"});
  has_role(User{"hana"}, "hr_partner", Department{"engineering"});
  has_role(User{"carl"}, "controller", Department{"engineering"});
}

test "all managers above a user, and no one else" {
  setup { fixture firm; }
  assert allow(user: User, "review", User{"ian"}) iff user in [User{"mia"}, User{"vic"}, User{"ceo"}];
  assert allow(User{"vic"}, "plan_leave", user: User) iff user in [User{"mia"}, User{"ian"}];
  assert_not allow(User{"ian"}, "review", User{"mia"});
}

test "a user's own profile" {
  setup { fixture firm; }
  assert allow(User{"ian"}, action: String, User{"ian"}) iff action in ["read_profile", "edit_profile", "read_salary"];
  assert allow(User{"ian"}, action: String, User{"mia"}) iff action in ["read_profile"];
}

test "HR partners of a department and of those within it" {
  setup { fixture firm; }
  assert allow(User{"hana"}, action: String, User{"ian"})
    iff action in ["read_profile", "edit_profile", "read_salary", "set_salary"];
  assert_not allow(User{"hana"}, "read_salary", User{"mia"});
  assert allow(User{"hana"}, action: String, Department{"tools"}) iff action in ["read_headcount"];
  assert allow(User{"carl"}, action: String, Department{"tools"}) iff action in ["read_headcount", "read_budget"];
}

test "fields that can be read" {
  setup { fixture firm; }
  assert allow_field(User{"ian"}, "read", User{"mia"}, field: Field)
    iff field in [Field{"name"}, Field{"photo"}, Field{"department"}, Field{"office"}];
  assert allow_field(User{"mia"}, "read", User{"ian"}, field: Field)
    iff field in [
      Field{"name"}, Field{"photo"}, Field{"department"}, Field{"office"}, Field{"salary"}, Field{"bonus"}
    ];
  assert allow_field(user: User, "read", User{"ian"}, Field{"home_address"}) iff user in [User{"ian"}, User{"hana"}];
}

test "fields that can be changed" {
  setup { fixture firm; }
  assert allow_field(User{"ian"}, "write", User{"ian"}, field: Field)
    iff field in [Field{"photo"}, Field{"office"}, Field{"home_address"}];
  assert_not allow_field(User{"mia"}, "write", User{"ian"}, Field{"photo"});
}

test fixture trip {
  fixture firm;
  has_relation(Expense{"trip"}, "claimant", User{"ian"});
  has_relation(Expense{"trip"}, "department", Department{"tools"});
  costs(Expense{"trip"}, 900);
  may_sign_up_to(User{"mia"}, 500);
  may_sign_up_to(User{"vic"}, 5000);
  may_sign_up_to(User{"carl"}, 5000);
}

test "expenses are approved within the approver's limit" {
  setup { fixture trip; }
  assert allow(user: User, "approve", Expense{"trip"}) iff user in [User{"vic"}];
  assert allow(user: User, "read", Expense{"trip"}) iff user in [User{"ian"}, User{"vic"}, User{"carl"}];
  assert allow(User{"ian"}, action: String, Expense{"trip"}) iff action in ["read", "withdraw"];
  assert_not allow(User{"carl"}, "pay", Expense{"trip"});
}

test "an approved expense can be paid and no longer changed" {
  setup { fixture trip; is_approved(Expense{"trip"}); }
  assert allow(User{"carl"}, action: String, Expense{"trip"}) iff action in ["read", "pay"];
  assert allow(User{"ian"}, action: String, Expense{"trip"}) iff action in ["read"];
  assert_not allow(User{"vic"}, "approve", Expense{"trip"});
}

test "no one approves or pays their own expenses" {
  setup {
    fixture firm;
    has_relation(Expense{"lunch"}, "claimant", User{"carl"});
    has_relation(Expense{"lunch"}, "department", Department{"tools"});
    has_relation(User{"carl"}, "reports_to", User{"carl"});
    costs(Expense{"lunch"}, 20);
    may_sign_up_to(User{"carl"}, 5000);
  }
  assert_not allow(User{"carl"}, "approve", Expense{"lunch"});
}

test "claimants cannot pay their own expenses" {
  setup {
    fixture firm;
    has_relation(Expense{"lunch"}, "claimant", User{"carl"});
    has_relation(Expense{"lunch"}, "department", Department{"tools"});
    is_approved(Expense{"lunch"});
  }
  assert_not allow(User{"carl"}, "pay", Expense{"lunch"});
}

test "delegates approve while the delegation lasts" {
  setup {
    fixture trip;
    may_sign_up_to(User{"sub"}, 1000);
    may_sign_up_to(User{"old"}, 1000);
    may_sign_up_to(User{"ian"}, 1000);
    stands_in_for(User{"sub"}, User{"mia"}, 1000000000, 4000000000);
    stands_in_for(User{"old"}, User{"mia"}, 1000000000, 1100000000);
    stands_in_for(User{"ian"}, User{"mia"}, 1000000000, 4000000000);
  }
  assert allow(user: User, "approve", Expense{"trip"}) iff user in [User{"vic"}, User{"sub"}];
}
