actor User {}
actor Admin {}
resource Doc { permissions = ["read"]; }
allow(actor: User, action: String, resource: Resource) if not is_blocked(actor) and has_permission(actor, action, resource);
allow(admin: Admin, action, resource) if user matches User and can_impersonate(admin, user) and allow(user, action, resource);
