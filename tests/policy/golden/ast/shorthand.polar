resource Repo {
  "read" if "member";
  "admin" if "owner";
  "read" if "read" on "parent";
  "read" if "reader" on "parent" and "member" on "team" or "owner";
  role if role on "parent";
  permission if permission on "parent";
  "subscriber" if role on "subscribed_organization";
  permission if "admin" on "org";
  permission if "admin";
  "read" if global "reader";
  "read" if global role;
  "read" if is_public(resource);
  "read" if has_status(resource, "published", 3, true, User{"x"}, role, _, @current_unix_time);
  "read" if ("member" or "owner") and not is_locked(resource);
  "owner" if "owner";
}
