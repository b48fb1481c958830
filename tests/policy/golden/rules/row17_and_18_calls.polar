actor User {}
resource Post {
  permissions = ["read", "edit"];
  "read" if is_public(resource);
  "read" if has_status(resource, "published");
  "edit" if is_author(actor, resource) and has_level(resource, level) and is_below(level, 3);
  permission if has_custom(actor, permission, resource);
}
