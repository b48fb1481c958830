# What a folder denies goes on below it, and so does what it allows, unless it is denied there.
actor User {}
actor Group {}

resource Folder { permissions = ["read", "list"]; relations = { parent: Folder }; }

can(u: User, f: Folder) if owner(u, f);
can(u: User, f: Folder) if has_relation(f, "parent", p) and can(u, p) and not denied(u, f);
denied(a: Actor, f: Folder) if deny(a, f);
denied(a: Actor, f: Folder) if g matches Group and has_group(a, g) and denied(g, f);
has_permission(u: User, "read", f: Folder) if can(u, f);
has_permission(u: User, "list", f: Folder) if has_permission(u, "read", f) and not (has_relation(g, "parent", f) and not can(u, g));
