# A hospital with wards, patients, and medical records whose parts have different readers.
#
# Shows field-level access (permissions are named after the parts of a record), time-bound assignments (staff work on a
# ward from one day to another), objections of patients, and emergency access ("break the glass").

# Everyone who signs in is a User: staff and patients.
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

  # A part of the record, and the action on it.
  permissions = [
    "name.read", "bed.read",
    "contact.read", "contact.write",
    "vitals.read", "vitals.write",
    "diagnosis.read", "diagnosis.write",
    "medication.read", "medication.write", "medication.give",
    "psychiatry.read",
    "bill.read",
  ];

  # Staff of the patient's ward, according to their role, and as long as they work there.
  "visitor" if "assistant" on "ward";
  "caregiver" if "nurse" on "ward";
  "physician" if "physician" on "ward" and not is_protected(resource);

  # The physicians who treat the patient, on any ward.
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

  # The most private part is only for the treating physicians: being a physician on the ward is not enough.
  "psychiatry.read" if "treated_by";

  # Patients read their own record and update their address. A physician can withhold results until somebody has
  # talked to the patient.
  "name.read" if "self";
  "bed.read" if "self";
  "contact.read" if "self";
  "contact.write" if "self";
  "medication.read" if "self";
  "bill.read" if "self";
  "diagnosis.read" if "self" and not awaits_talk(resource);
}

# ---- assignments ----------------------------------------------------------------------------------------------------

# Roles on a ward have a start and an end, as Unix times; the end is exclusive. An assignment that is over stays as a
# fact, and grants nothing.
has_role(user: User, role: String, ward: Ward) if
  from matches Integer and
  to matches Integer and
  works_on(user, role, ward, from, to) and
  from <= @current_unix_time and
  @current_unix_time < to;

# ---- consent and objection ------------------------------------------------------------------------------------------

# A patient can let a relative or friend see their condition.
has_permission(user: User, "name.read", patient: Patient) if is_informed(user, patient);
has_permission(user: User, "vitals.read", patient: Patient) if is_informed(user, patient);

# A patient can also exclude anyone by name. This overrides everything else, so it is part of `allow`.
allow(user: User, action: String, patient: Patient) if
  has_permission(user, action, patient) and
  not is_kept_out(user, patient);

# ---- emergencies ----------------------------------------------------------------------------------------------------

# In an emergency, a physician breaks the glass: a fact that expires after an hour, and that stays in the history for
# audits. It grants access to vital information only, even to excluded physicians.
allow(user: User, action: String, patient: Patient) if
  breaks_glass(user, patient) and
  has_role(user, "physician") and
  action in ["name.read", "bed.read", "vitals.read", "diagnosis.read", "medication.read"];

# As this policy has its own `allow`, it needs rules for the other resources, too.
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

test "staff see the parts of a record that they need" {
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

test "patients read their own record" {
  setup { fixture ward; }
  assert allow(User{"pia"}, action: String, Patient{"p1"})
    iff action in [
      "name.read", "bed.read", "contact.read", "contact.write", "medication.read", "bill.read", "diagnosis.read"
    ];
  assert_not allow(User{"pia"}, "name.read", Patient{"p2"});
}

test "withheld results are hidden until somebody has talked to the patient" {
  setup { fixture ward; awaits_talk(Patient{"p1"}); }
  assert_not allow(User{"pia"}, "diagnosis.read", Patient{"p1"});
  assert allow(User{"dr-may"}, "diagnosis.read", Patient{"p1"});
}

test "past and future assignments" {
  setup {
    has_relation(Patient{"p1"}, "ward", Ward{"b2"});
    works_on(User{"was"}, "nurse", Ward{"b2"}, 1000000000, 1500000000);
    works_on(User{"will"}, "nurse", Ward{"b2"}, 4000000000, 4100000000);
  }
  assert_not allow(User{"was"}, "enter", Ward{"b2"});
  assert_not allow(User{"will"}, "vitals.read", Patient{"p1"});
}

test "protected patients are visible only to treating physicians" {
  setup { fixture ward; is_protected(Patient{"p1"}); }
  assert_not allow(User{"dr-may"}, "diagnosis.read", Patient{"p1"});
  assert allow(User{"dr-psy"}, "diagnosis.read", Patient{"p1"});
  assert allow(User{"nia"}, "vitals.write", Patient{"p1"});
}

test "relatives and excluded people" {
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

test "statistics cover the whole hospital" {
  setup {
    has_role(User{"aud"}, "auditor");
    has_role(User{"dr-er"}, "physician");
    has_role(User{"nia"}, "nurse");
  }
  assert allow(User{"aud"}, "read_statistics");
  assert allow(User{"dr-er"}, "read_statistics");
  assert_not allow(User{"nia"}, "read_statistics");
}
