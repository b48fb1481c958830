# A hospital: wards, patients, and records of which each part is for other eyes.
#
# It shows field-level access (the parts of a record are in the names of permissions), time (people work on a ward from
# one day to another), what patients may forbid, and what counts in an emergency.

# Whoever signs in is a User: who works here as well as who is treated here.
actor User {}

global {
  roles = ["physician", "nurse", "auditor"];
  permissions = ["read_statistics"];

  "read_statistics" if "auditor";
  "read_statistics" if "physician";
}

resource Ward {
  roles = ["assistant", "nurse", "physician", "head"];
  permissions = ["enter", "plan_shifts", "assign_beds", "order_supplies"];

  "physician" if "head";

  "enter" if "assistant";
  "enter" if "nurse";
  "enter" if "physician";
  "assign_beds" if "nurse";
  "assign_beds" if "physician";
  "order_supplies" if "nurse";
  "plan_shifts" if "head";
}

resource Patient {
  roles = ["visitor", "caregiver", "physician", "self"];
  relations = { ward: Ward, person: User, treated_by: User };

  # A part of the record, and what is done with it.
  permissions = [
    "name.read", "bed.read",
    "contact.read", "contact.write",
    "vitals.read", "vitals.write",
    "diagnosis.read", "diagnosis.write",
    "medication.read", "medication.write", "medication.give",
    "psychiatry.read",
    "bill.read",
  ];

  # Who works on the ward where the patient lies: as far as their work goes, and as long as they work there.
  "visitor" if "assistant" on "ward";
  "caregiver" if "nurse" on "ward";
  "physician" if "physician" on "ward" and not is_protected(resource);

  # And who treats the patient, wherever.
  "physician" if "treated_by";
  "self" if "person";

  "caregiver" if "physician";
  "visitor" if "caregiver";

  "name.read" if "visitor";
  "bed.read" if "visitor";

  "contact.read" if "caregiver";
  "contact.write" if "caregiver";
  "vitals.read" if "caregiver";
  "vitals.write" if "caregiver";
  "medication.read" if "caregiver";
  "medication.give" if "caregiver";

  "diagnosis.read" if "physician";
  "diagnosis.write" if "physician";
  "medication.write" if "physician";

  # The most private part is for who treats the patient: to be a physician on the ward is not enough.
  "psychiatry.read" if "treated_by";

  # Patients read what is written about them, and keep their address themselves. What they wish to keep from
  # themselves until somebody has talked to them, a physician marks.
  "name.read" if "self";
  "bed.read" if "self";
  "contact.read" if "self";
  "contact.write" if "self";
  "medication.read" if "self";
  "bill.read" if "self";
  "diagnosis.read" if "self" and not awaits_talk(resource);
}

# ---- who works where, and when --------------------------------------------------------------------------------------

# Roles on a ward are given from one day to another, in seconds since 1970: the end is the first second that does not
# count. An assignment that is over stays as a fact, and grants nothing.
has_role(user: User, role: String, ward: Ward) if
  from matches Integer and
  to matches Integer and
  works_on(user, role, ward, from, to) and
  from <= @current_unix_time and
  @current_unix_time < to;

# ---- what patients say ----------------------------------------------------------------------------------------------

# A patient may let somebody know how they are: a relative, a friend.
has_permission(user: User, "name.read", patient: Patient) if is_informed(user, patient);
has_permission(user: User, "vitals.read", patient: Patient) if is_informed(user, patient);

# And may keep anybody out, by name. It is the last word, so it stands in `allow`, where all ways come together.
allow(user: User, action: String, patient: Patient) if
  has_permission(user, action, patient) and
  not is_kept_out(user, patient);

# ---- emergencies ----------------------------------------------------------------------------------------------------

# In an emergency, a physician breaks the glass: such a fact is stored with an end, an hour later, and each one is there
# to be found in the history. It opens what saves a life, even to who is kept out, and no more than that.
allow(user: User, action: String, patient: Patient) if
  breaks_glass(user, patient) and
  has_role(user, "physician") and
  action in ["name.read", "bed.read", "vitals.read", "diagnosis.read", "medication.read"];

# As this policy has an `allow` of its own, those about other things have to be said as well.
allow(user: User, action: String, ward: Ward) if has_permission(user, action, ward);
allow(user: User, action: String) if has_permission(user, action);

# ---- tests --------------------------------------------------------------------------------------------------------

test fixture ward {
  works_on(User{"nia"}, "nurse", Ward{"b2"}, 1000000000, 4000000000);
  works_on(User{"dr-may"}, "physician", Ward{"b2"}, 1000000000, 4000000000);
  works_on(User{"dr-head"}, "head", Ward{"b2"}, 1000000000, 4000000000);
  works_on(User{"abe"}, "assistant", Ward{"b2"}, 1000000000, 4000000000);
  has_relation(Patient{"p1"}, "ward", Ward{"b2"});
  has_relation(Patient{"p1"}, "person", User{"pia"});
  has_relation(Patient{"p1"}, "treated_by", User{"dr-psy"});
}

test "on the ward" {
  setup { fixture ward; }
  assert allow(User{"abe"}, action: String, Ward{"b2"}) iff action in ["enter"];
  assert allow(User{"nia"}, action: String, Ward{"b2"}) iff action in ["enter", "assign_beds", "order_supplies"];
  assert allow(User{"dr-may"}, action: String, Ward{"b2"}) iff action in ["enter", "assign_beds"];
  assert allow(User{"dr-head"}, action: String, Ward{"b2"}) iff action in ["enter", "assign_beds", "plan_shifts"];
}

test "each sees the parts that their work needs" {
  setup { fixture ward; }
  assert allow(User{"abe"}, action: String, Patient{"p1"}) iff action in ["name.read", "bed.read"];
  assert allow(User{"nia"}, action: String, Patient{"p1"})
    iff action in [
      "name.read", "bed.read", "contact.read", "contact.write", "vitals.read", "vitals.write", "medication.read",
      "medication.give"
    ];
  assert allow(user: User, "diagnosis.write", Patient{"p1"})
    iff user in [User{"dr-may"}, User{"dr-head"}, User{"dr-psy"}];
  assert allow(user: User, "psychiatry.read", Patient{"p1"}) iff user in [User{"dr-psy"}];
}

test "patients read about themselves" {
  setup { fixture ward; }
  assert allow(User{"pia"}, action: String, Patient{"p1"})
    iff action in [
      "name.read", "bed.read", "contact.read", "contact.write", "medication.read", "bill.read", "diagnosis.read"
    ];
  assert_not allow(User{"pia"}, "name.read", Patient{"p2"});
}

test "but not before somebody has talked to them" {
  setup { fixture ward; awaits_talk(Patient{"p1"}); }
  assert_not allow(User{"pia"}, "diagnosis.read", Patient{"p1"});
  assert allow(User{"dr-may"}, "diagnosis.read", Patient{"p1"});
}

test "assignments that are over, and some to come" {
  setup {
    has_relation(Patient{"p1"}, "ward", Ward{"b2"});
    works_on(User{"was"}, "nurse", Ward{"b2"}, 1000000000, 1500000000);
    works_on(User{"will"}, "nurse", Ward{"b2"}, 4000000000, 4100000000);
  }
  assert_not allow(User{"was"}, "enter", Ward{"b2"});
  assert_not allow(User{"will"}, "vitals.read", Patient{"p1"});
}

test "a protected patient is for who treats them" {
  setup { fixture ward; is_protected(Patient{"p1"}); }
  assert_not allow(User{"dr-may"}, "diagnosis.read", Patient{"p1"});
  assert allow(User{"dr-psy"}, "diagnosis.read", Patient{"p1"});
  assert allow(User{"nia"}, "vitals.write", Patient{"p1"});
}

test "who is informed, and who is kept out" {
  setup {
    fixture ward;
    is_informed(User{"son"}, Patient{"p1"});
    is_informed(User{"ex"}, Patient{"p1"});
    is_kept_out(User{"ex"}, Patient{"p1"});
    is_kept_out(User{"nia"}, Patient{"p1"});
  }
  assert allow(User{"son"}, action: String, Patient{"p1"}) iff action in ["name.read", "vitals.read"];
  assert_not allow(User{"ex"}, "name.read", Patient{"p1"});
  assert_not allow(User{"nia"}, "vitals.read", Patient{"p1"});
}

test "in an emergency" {
  setup {
    fixture ward;
    has_role(User{"dr-er"}, "physician");
    breaks_glass(User{"dr-er"}, Patient{"p1"});
    breaks_glass(User{"abe"}, Patient{"p1"});
    is_kept_out(User{"dr-er"}, Patient{"p1"});
  }
  assert allow(User{"dr-er"}, action: String, Patient{"p1"})
    iff action in ["name.read", "bed.read", "vitals.read", "diagnosis.read", "medication.read"];
  assert_not allow(User{"dr-er"}, "diagnosis.read", Patient{"p2"});
  assert_not allow(User{"abe"}, "diagnosis.read", Patient{"p1"});
}

test "statistics are of the whole house" {
  setup {
    has_role(User{"aud"}, "auditor");
    has_role(User{"dr-er"}, "physician");
    has_role(User{"nia"}, "nurse");
  }
  assert allow(User{"aud"}, "read_statistics");
  assert allow(User{"dr-er"}, "read_statistics");
  assert_not allow(User{"nia"}, "read_statistics");
}
