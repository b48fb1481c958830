# Actors are resources too: a manager is one for all below.
actor User {
  roles = ["manager"];
  permissions = ["read_profile", "read_salary"];
  relations = { manager_of_record: User };

  "manager" if "manager_of_record";
  "manager" if "manager" on "manager_of_record";
  "read_salary" if "manager";
  "read_profile" if "manager";
}

has_permission(user: User, "read_profile", user: User);

resource Review {
  permissions = ["read"];
  relations = { subject: User };
  "read" if "manager" on "subject";
  "read" if "subject" and is_published(resource);
}

test fixture firm {
  has_relation(User{"ian"}, "manager_of_record", User{"mia"});
  has_relation(User{"mia"}, "manager_of_record", User{"ceo"});
  has_relation(Review{"r1"}, "subject", User{"ian"});
}

test "the whole line above, and nobody else" {
  setup { fixture firm; }
  assert allow(user: User, "read_salary", User{"ian"}) iff user in [User{"mia"}, User{"ceo"}];
  assert allow(User{"ceo"}, "read_salary", user: User) iff user in [User{"mia"}, User{"ian"}];
  assert_not allow(User{"ian"}, "read_salary", User{"ian"});
  assert_not allow(User{"ian"}, "read_profile", User{"mia"});
  assert allow(User{"ceo"}, "read", Review{"r1"});
}

test "everybody reads their own profile" {
  assert allow(User{"ian"}, "read_profile", User{"ian"});
  assert_not allow(User{"ian"}, "read_profile", User{"ceo"});
}

test "a review is its subject's when published" {
  setup { fixture firm; is_published(Review{"r1"}); }
  assert allow(User{"ian"}, "read", Review{"r1"});
}
