# One permission for many reasons, through types that share them.
actor User {}
actor Robot {}

resource Thing { roles = ["reader"]; permissions = ["read"]; "read" if "reader"; }
resource Page extends Thing {
  roles = ["editor"];
  permissions = ["write"];
  relations = { site: Site, owner: User };
  "reader" if "editor";
  "reader" if "owner" or "member" on "site" or is_public(resource);
  "write" if "editor" or ("owner" and not is_locked(resource));
}
resource Picture extends Thing { relations = { page: Page }; "reader" if "reader" on "page"; }
resource Site { roles = ["member", "admin"]; "member" if "admin"; }

has_role(a: Actor, "reader", t: Thing) if is_staff(a) or (works_for(a, u) and has_role(u, "reader", t));
