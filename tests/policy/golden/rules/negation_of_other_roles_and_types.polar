# each negates a question that does not lead back
actor User {}
resource Folder { roles = ["member", "guest", "banned"]; relations = { parent: Folder }; role if role on "parent"; "member" if "guest" and not "banned"; }
resource Doc { permissions = ["p1", "p2"]; relations = { parent: Folder }; }
has_permission(actor: User, "p2", resource: Doc) if f matches Doc and has_relation(resource, "parent", f) and has_permission(actor, "p1", f) and not is_banned(actor) and not has_permission(actor, "p3", resource);
p(x: User) if not p(y) and y matches Doc and q(x, y);
p(x: Doc) if r(x);
