# A relation that may lead to things of several types.
actor User {}

resource Organization { roles = ["member"]; }
resource Team { roles = ["member"]; }

resource Project {
  permissions = ["read"];
  relations = { parent: Resource, contact: Actor };
  "read" if "member" on "parent";
  "read" if "contact";
}

test "either parent" {
  setup {
    has_relation(Project{"a"}, "parent", Organization{"1"});
    has_relation(Project{"b"}, "parent", Team{"1"});
    has_relation(Project{"c"}, "contact", User{"1"});
    has_role(User{"ann"}, "member", Organization{"1"});
    has_role(User{"bob"}, "member", Team{"1"});
  }
  assert allow(User{"ann"}, "read", project: Project) iff project in [Project{"a"}];
  assert allow(User{"bob"}, "read", project: Project) iff project in [Project{"b"}];
  assert allow(User{"1"}, "read", project: Project) iff project in [Project{"c"}];
}
