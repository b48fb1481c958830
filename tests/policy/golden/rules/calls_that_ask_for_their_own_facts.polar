# a Role entity where blocks have a String, and a Group that is no actor
actor User {}
resource Group {}
resource Role {}
resource Org { roles = ["member"]; permissions = ["read"]; "read" if "member"; }
has_permission(user: User, action: String, org: Org) if role matches Role and has_role(user, role, org) and grants_permission(role, action);
has_role(user: User, role: String, org: Org) if group matches Group and has_group(user, group) and has_role(group, role, org);
which(user, role, org) if has_role(user, role, org);
