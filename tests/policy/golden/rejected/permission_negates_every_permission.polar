actor User {}
actor Bot {}
resource Doc { permissions = ["read"]; }
has_permission(actor: User, "read", doc: Doc) if q(actor) and not has_permission(actor, _any, doc);
