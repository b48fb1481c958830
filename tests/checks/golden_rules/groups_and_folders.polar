# Groups in groups, and folders in folders: each is followed on its own.
actor User {}
actor Group {}
resource Folder { roles = ["reader"]; relations = { parent: Folder }; role if role on "parent"; }

has_role(a: Actor, role: String, f: Folder) if has_group(a, g) and g matches Group and has_role(g, role, f);
