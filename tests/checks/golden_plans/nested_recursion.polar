# Groups in groups, folders in folders, and a way that asks at each step for another recursion.
actor User {}
actor Group {}

resource Folder {
  roles = ["viewer", "editor"];
  permissions = ["read", "write"];
  relations = { parent: Folder };
  role if role on "parent";
  "viewer" if "editor";
  "read" if "viewer";
  "write" if "editor";
}

has_role(a: Actor, role: String, f: Folder) if has_group(a, g) and has_role(g, role, f);

inside(a: Actor, g: Group) if has_group(a, g);
inside(a: Actor, g: Group) if has_group(a, h) and inside(h, g) and not frozen(h);
frozen(g: Group) if ice(g);
frozen(g: Group) if next_to(g, h) and frozen(h);
has_permission(u: User, "write", f: Folder) if inside(u, g) and has_role(g, "editor", f) and not frozen(g);
