# Groups in groups, beside types one below the other: nothing that hops recurses, but the groups that one hop goes by.
actor User {}
actor Group {}
resource Organization { roles = ["reader"]; }
resource Project { roles = ["reader"]; relations = { parent: Organization }; role if role on "parent"; }
resource Repository { roles = ["reader"]; relations = { parent: Project }; role if role on "parent"; }

has_role(u: User, role: String, x: Resource) if has_group(u, g) and g matches Group and has_role(g, role, x);
has_group(a: Actor, g: Group) if h matches Group and has_group(a, h) and has_group(h, g);
