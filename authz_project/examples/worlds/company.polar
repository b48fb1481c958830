# A company looks after its people: who reports to whom, what of a person's file others may see, who signs which
# expense, and who stands in for whom.
#
# It shows hierarchies of any depth (managers of managers, departments in departments), field-level access with a
# predicate of one's own, limits, separation of duties, and standing in for somebody while they are away.

# People are actors and resources at once: they do things, and things are done to their files.
actor User {
  roles = ["manager", "hr_partner"];
  permissions = ["read_profile", "edit_profile", "read_salary", "set_salary", "review", "plan_leave"];
  relations = { reports_to: User, department: Department };

  # Whom somebody reports to is their manager, and so is the manager's manager, up to the top.
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

# What everybody may: read anybody's profile, for `_` is every user. And what one may with one's own file: a variable
# that stands twice is the same person twice.
has_permission(_: User, "read_profile", _: User);
has_permission(user: User, "edit_profile", user: User);
has_permission(user: User, "read_salary", user: User);

# Departments are in departments. A role in one is a role in all that are in it.
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

# A field of a file is a thing, too. The question has four parts here: who, does what, with whose file, to which field.
# `allow_field` is a name like any other; ask for it by /evaluate_query, or in a test.
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

  # Two pairs of eyes: who signed does not pay. See also the rules for `approve`.
  "pay" if "controller" on "department" and is_approved(resource) and not is_own(actor, resource);
}

# Managers sign for their people, as far as their limit goes, and never for themselves.
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

# ---- standing in ----------------------------------------------------------------------------------------------------

signs_for(user: User, claimant: User) if has_role(user, "manager", claimant);

# While somebody is away, who stands in for them signs in their place, up to their own limit. When the time is over, so
# is this, and nobody has to take anything back.
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

test "the whole line above somebody, and nobody else" {
  setup { fixture firm; }
  assert allow(user: User, "review", User{"ian"}) iff user in [User{"mia"}, User{"vic"}, User{"ceo"}];
  assert allow(User{"vic"}, "plan_leave", user: User) iff user in [User{"mia"}, User{"ian"}];
  assert_not allow(User{"ian"}, "review", User{"mia"});
}

test "one's own file" {
  setup { fixture firm; }
  assert allow(User{"ian"}, action: String, User{"ian"}) iff action in ["read_profile", "edit_profile", "read_salary"];
  assert allow(User{"ian"}, action: String, User{"mia"}) iff action in ["read_profile"];
}

test "partners of a department and of those in it" {
  setup { fixture firm; }
  assert allow(User{"hana"}, action: String, User{"ian"})
    iff action in ["read_profile", "edit_profile", "read_salary", "set_salary"];
  assert_not allow(User{"hana"}, "read_salary", User{"mia"});
  assert allow(User{"hana"}, action: String, Department{"tools"}) iff action in ["read_headcount"];
  assert allow(User{"carl"}, action: String, Department{"tools"}) iff action in ["read_headcount", "read_budget"];
}

test "fields that are read" {
  setup { fixture firm; }
  assert allow_field(User{"ian"}, "read", User{"mia"}, field: Field)
    iff field in [Field{"name"}, Field{"photo"}, Field{"department"}, Field{"office"}];
  assert allow_field(User{"mia"}, "read", User{"ian"}, field: Field)
    iff field in [
      Field{"name"}, Field{"photo"}, Field{"department"}, Field{"office"}, Field{"salary"}, Field{"bonus"}
    ];
  assert allow_field(user: User, "read", User{"ian"}, Field{"home_address"}) iff user in [User{"ian"}, User{"hana"}];
}

test "fields that are written" {
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

test "an expense is signed by who may sign so much" {
  setup { fixture trip; }
  assert allow(user: User, "approve", Expense{"trip"}) iff user in [User{"vic"}];
  assert allow(user: User, "read", Expense{"trip"}) iff user in [User{"ian"}, User{"vic"}, User{"carl"}];
  assert allow(User{"ian"}, action: String, Expense{"trip"}) iff action in ["read", "withdraw"];
  assert_not allow(User{"carl"}, "pay", Expense{"trip"});
}

test "once it is signed, it is paid, and stays" {
  setup { fixture trip; is_approved(Expense{"trip"}); }
  assert allow(User{"carl"}, action: String, Expense{"trip"}) iff action in ["read", "pay"];
  assert allow(User{"ian"}, action: String, Expense{"trip"}) iff action in ["read"];
  assert_not allow(User{"vic"}, "approve", Expense{"trip"});
}

test "nobody pays or signs for themselves" {
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

test "nor is paid what one claims oneself" {
  setup {
    fixture firm;
    has_relation(Expense{"lunch"}, "claimant", User{"carl"});
    has_relation(Expense{"lunch"}, "department", Department{"tools"});
    is_approved(Expense{"lunch"});
  }
  assert_not allow(User{"carl"}, "pay", Expense{"lunch"});
}

test "who stands in signs, as long as it lasts" {
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
