# Members have what their groups have; what goes down the folders depends on both arguments, so it is no plain way.
actor User {}
actor Group {}

resource Folder { roles = ["viewer"]; permissions = ["read"]; relations = { parent: Folder }; "read" if "viewer"; }

has_role(a: Actor, role: String, f: Folder) if has_group(a, g) and has_role(g, role, f);
has_role(a: Actor, role: String, f: Folder) if has_relation(f, "parent", p) and has_role(a, role, p) and not barred(a, f);
