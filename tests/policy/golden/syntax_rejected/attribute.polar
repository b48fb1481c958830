has_permission(user: User, "read", doc: Doc) if
  doc.owner = user and user.is_active(true);
