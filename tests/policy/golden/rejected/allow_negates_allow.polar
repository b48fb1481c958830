actor User {}
actor Bot {}
resource Doc {}
allow(actor: User, action, doc: Doc) if has_permission(actor, action, doc) and not allow(actor, "never", doc);
