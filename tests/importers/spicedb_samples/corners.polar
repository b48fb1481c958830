# What is rarely used, all in one.
actor user {
  roles = ["friend"];
  permissions = ["profile", "nothing", "possibly_profile", "possibly_friend"];

  "friend" if has_role_if(actor, "friend", resource, when) and asked(when);
  "profile" if actor matches user and actor = resource;
  "profile" if "friend";

  # whoever may be profile, for all that is known
  "possibly_profile" if "profile";
  "possibly_profile" if "possibly_friend";

  # whoever may be friend, for all that is known
  "possibly_friend" if "friend";
  "possibly_friend" if
    has_role_if(actor, "friend", resource, when) and
    when matches asked and
    not fails(when);
}

actor machine {}

# "direct_part_of": leads to ring and user
actor ring {
  roles = ["owner", "part_of"];
  permissions = ["keep", "inside", "under", "possibly_inside"];
  relations = { part_of_ring: ring };

  "keep" if "owner";
  "part_of" if "keep" on "part_of_ring";
  "part_of" if has_relation(resource, "direct_part_of", actor);
  "inside" if "keep";
  "inside" if
    ring matches ring and
    has_relation(resource, "direct_part_of", ring) and
    has_permission(actor, "inside", ring);
  "inside" if "inside" on "part_of_ring";
  "inside" if
    user matches user and
    has_relation(resource, "direct_part_of", user) and
    has_permission(actor, "profile", user);
  "under" if "part_of";

  # whoever may be inside, for all that is known
  "possibly_inside" if "inside";
  "possibly_inside" if
    ring matches ring and
    has_relation(resource, "direct_part_of", ring) and
    has_permission(actor, "possibly_inside", ring);
  "possibly_inside" if "possibly_inside" on "part_of_ring";
  "possibly_inside" if
    user matches user and
    has_relation(resource, "direct_part_of", user) and
    has_permission(actor, "possibly_profile", user);
}

declare has_relation(ring, String, ring);
declare has_relation(ring, String, user);

resource vault {
  roles = ["owner", "barred", "guest"];
  permissions = ["keep", "open", "open_all", "open_any", "twice", "possibly_barred"];
  relations = { keeper: ring, barred_ring: ring };

  "keep" if "owner";
  "barred" if actor matches user and is_public_if(resource, "barred", when) and asked(when);
  "barred" if "inside" on "barred_ring";
  "guest" if actor matches user and is_public(resource, "guest", "user");
  "guest" if actor matches machine and is_public(resource, "guest", "machine");
  "open" if "guest" and not "possibly_barred";
  "open_all" if
    ring matches ring and
    has_relation(resource, "keeper", ring) and
    not (
      other_ring matches ring and
      has_relation(resource, "keeper", other_ring) and
      not has_permission(actor, "keep", other_ring)
    ) and
    not "possibly_barred";
  "open_any" if "keep" on "keeper" and "guest";
  "twice" if "open_any" and not ("owner" and not "keep") and ("open" or "open_all");

  # whoever may be barred, for all that is known
  "possibly_barred" if "barred";
  "possibly_barred" if
    actor matches user and
    is_public_if(resource, "barred", when) and
    when matches asked and
    not fails(when);
  "possibly_barred" if "possibly_inside" on "barred_ring";
}

# yes
resource asked {}

asked(when: asked) if value_of(when, "yes", true);

fails(when: asked) if value_of(when, "yes", false);

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
  has_role(user{"bob"}, "friend", user{"ann"});
  has_role_if(user{"cat"}, "friend", user{"ann"}, asked{"by request"});
  has_role(user{"ann"}, "owner", ring{"a"});
  has_role(user{"bob"}, "owner", ring{"b"});
  has_role(user{"ann"}, "owner", ring{"b"});
  has_relation(ring{"b"}, "direct_part_of", ring{"a"});
  has_relation(ring{"c"}, "direct_part_of", user{"ann"});
  has_relation(ring{"d"}, "part_of_ring", ring{"b"});
  is_public(vault{"1"}, "guest", "user");
  has_role(user{"eve"}, "barred", vault{"1"});
  is_public_if(vault{"1"}, "barred", asked{"by request"});
  has_relation(vault{"1"}, "keeper", ring{"a"});
  has_relation(vault{"1"}, "keeper", ring{"b"});
  is_public(vault{"2"}, "guest", "machine");
  is_public(vault{"2"}, "guest", "user");
  has_relation(vault{"2"}, "barred_ring", ring{"b"});
}

test "corners" {
  setup {
    fixture tuples;
  }
  assert allow(user{"ann"}, "profile", user{"ann"});
  assert allow(user{"bob"}, "profile", user{"ann"});
  assert allow(user{"ann"}, "inside", ring{"b"});
  assert allow(user{"ann"}, "inside", ring{"c"});
  assert allow(user{"bob"}, "inside", ring{"c"});
  assert allow(user{"bob"}, "inside", ring{"d"});
  assert allow(user{"bob"}, "under", ring{"d"});
  assert allow(user{"ann"}, "under", ring{"c"});
  assert allow(user{"bob"}, "open_any", vault{"1"});
  assert allow(machine{"m"}, "open", vault{"2"});
  assert allow(user{"eve"}, "open", vault{"2"});
  assert_not allow(user{"eve"}, "profile", user{"ann"});
  assert_not allow(user{"ann"}, "nothing", user{"ann"});
  assert_not allow(user{"bob"}, "inside", ring{"a"});
  assert_not allow(machine{"m"}, "open", vault{"1"});
  assert_not allow(user{"bob"}, "open", vault{"2"});
  assert_not allow(user{"ann"}, "open", vault{"2"});
  assert_not allow(user{"cat"}, "profile", user{"ann"});
  assert_not allow(user{"ann"}, "open", vault{"1"});
  assert_not allow(user{"ann"}, "open_all", vault{"1"});
}

test "corners: yes true" {
  setup {
    fixture tuples;
    context("yes", true);
  }
  assert allow(user{"cat"}, "profile", user{"ann"});
  assert_not allow(user{"ann"}, "open", vault{"1"});
}

test "corners: yes false" {
  setup {
    fixture tuples;
    context("yes", false);
  }
  assert allow(user{"ann"}, "open", vault{"1"});
  assert allow(user{"ann"}, "open_all", vault{"1"});
  assert_not allow(user{"cat"}, "profile", user{"ann"});
  assert_not allow(user{"eve"}, "open", vault{"1"});
  assert_not allow(user{"bob"}, "open_all", vault{"1"});
}
