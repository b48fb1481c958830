# Names that mean something to Polar, or to what the importer writes.

actor user {}

resource string {}

resource allow {
  roles = ["actor", "resource", "possibly_actor"];
  permissions = ["when", "fails", "possibly__actor"];

  "actor" if has_role_if(actor, "actor", resource, when) and context_(when);
  "when" if "resource" and not "possibly__actor";
  "fails" if "possibly_actor" and "when";

  # whoever may be actor, for all that is known
  "possibly__actor" if "actor";
  "possibly__actor" if
    has_role_if(actor, "actor", resource, when) and
    when matches context_ and
    not fails(when);
}

# "not_": leads to a_b_ and user
actor a_b_ {
  roles = ["global", "global_allow"];
  permissions = ["permission", "matches", "direct_not"];
  relations = { global_allow_actor: allow, global_allow_when: allow, role: allow };

  "global" if "actor" on "global_allow_actor";
  "global" if "when" on "global_allow_when";
  "permission" if "global" and not "possibly__actor" on "role";
  "matches" if
    a_b_ matches a_b_ and
    has_relation(resource, "not_", a_b_) and
    has_permission(actor, "permission", a_b_);
  "matches" if
    allow matches allow and
    has_relation(resource, "role", allow) and
    not (
      other_allow matches allow and
      has_relation(resource, "role", other_allow) and
      not has_permission(actor, "when", other_allow)
    );
  "matches" if has_relation(resource, "not_", actor);
  "direct_not" if "global_allow";
}

declare has_relation(a_b_, String, a_b_);
declare has_relation(a_b_, String, user);

# "on_": leads to a_b_ and a_b and string
resource a_b {
  permissions = ["in"];

  "in" if
    a_b_ matches a_b_ and
    has_relation(resource, "on_", a_b_) and
    has_permission(actor, "permission", a_b_);
  "in" if
    a_b matches a_b and
    has_relation(resource, "on_", a_b) and
    has_permission(actor, "in", a_b);
}

declare has_relation(a_b, String, a_b_);
declare has_relation(a_b, String, a_b);
declare has_relation(a_b, String, string);

# value < when && if == "on" || not
resource context_ {}

context_(when: context_) if
  value_of(when, "value", value) and
  value_of(when, "when", when_) and
  value < when_ and
  value_of(when, "if", if_) and
  if_ = "on";

context_(when: context_) if value_of(when, "not", true);

fails(when: context_) if
  (
    value_of(when, "value", value) and value_of(when, "when", when_) and value >= when_ or
    value_of(when, "if", if_) and if_ matches String and if_ != "on"
  ) and
  value_of(when, "not", false);

# A value that a condition asks for: the tuple's own, or else the request's.
value_of(when: Resource, name: String, value) if parameter(when, name, value);
value_of(when: Resource, name: String, value) if
  context(name, value) and
  not parameter(when, name, _);

# Roles can be asked for as permissions can: /authorize answers for both.
allow(actor: Actor, action: String, resource: Resource) if has_permission(actor, action, resource);
allow(actor: Actor, role: String, resource: Resource) if has_role(actor, role, resource);
allow(actor: Actor, relation: String, resource: Resource) if
  has_relation(resource, relation, actor);

test fixture tuples {
  has_role(user{"ann"}, "actor", allow{"1"});
  has_role_if(user{"bob"}, "actor", allow{"1"}, context_{"if=on value=1"});
  parameter(context_{"if=on value=1"}, "value", 1);
  parameter(context_{"if=on value=1"}, "if", "on");
  has_role_if(user{"cat"}, "actor", allow{"1"}, context_{"by request"});
  has_role(user{"ann"}, "resource", allow{"1"});
  has_role(user{"bob"}, "resource", allow{"1"});
  has_role(user{"cat"}, "resource", allow{"1"});
  has_role(user{"dan"}, "resource", allow{"1"});
  has_role(user{"dan"}, "possibly_actor", allow{"1"});
  has_role(user{"cat"}, "possibly_actor", allow{"1"});
  has_role(user{"dan"}, "global", a_b_{"1"});
  has_relation(a_b_{"1"}, "global_allow_actor", allow{"1"});
  has_relation(a_b_{"2"}, "global_allow_when", allow{"1"});
  has_role(user{"eve"}, "global_allow", a_b_{"2"});
  has_relation(a_b_{"2"}, "role", allow{"1"});
  has_relation(a_b_{"3"}, "not_", a_b_{"1"});
  has_relation(a_b_{"3"}, "not_", user{"eve"});
  has_relation(a_b_{"4"}, "role", allow{"1"});
  has_relation(a_b{"1"}, "on_", a_b_{"1"});
  has_relation(a_b{"2"}, "on_", a_b{"1"});
  has_relation(a_b{"2"}, "on_", string{"s"});
}

test "names" {
  setup {
    fixture tuples;
  }
  assert allow(user{"dan"}, "when", allow{"1"});
  assert allow(user{"dan"}, "fails", allow{"1"});
  assert allow(user{"ann"}, "permission", a_b_{"1"});
  assert allow(user{"dan"}, "matches", a_b_{"3"});
  assert allow(user{"eve"}, "matches", a_b_{"3"});
  assert allow(user{"dan"}, "matches", a_b_{"4"});
  assert allow(user{"dan"}, "in", a_b{"2"});
  assert_not allow(user{"ann"}, "when", allow{"1"});
  assert_not allow(user{"ann"}, "fails", allow{"1"});
  assert_not allow(user{"ann"}, "matches", a_b_{"4"});
  assert_not allow(user{"bob"}, "when", allow{"1"});
  assert_not allow(user{"cat"}, "fails", allow{"1"});
  assert_not allow(user{"cat"}, "permission", a_b_{"1"});
}

test "names: not false, when 0" {
  setup {
    fixture tuples;
    context("not", false);
    context("when", 0);
  }
  assert allow(user{"bob"}, "when", allow{"1"});
}

test "names: when 2" {
  setup {
    fixture tuples;
    context("when", 2);
  }
  assert allow(user{"bob"}, "actor", allow{"1"});
  assert_not allow(user{"bob"}, "when", allow{"1"});
}

test "names: not true" {
  setup {
    fixture tuples;
    context("not", true);
  }
  assert allow(user{"cat"}, "actor", allow{"1"});
}
