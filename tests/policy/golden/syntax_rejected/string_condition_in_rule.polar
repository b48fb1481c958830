has_permission(user: User, "read", repo: Repo) if "admin" or "member" on "parent" or global "staff";
