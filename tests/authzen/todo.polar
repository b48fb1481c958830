# Viewers see all, editors own what they write, admins delete anything, evil geniuses edit anything.
actor user {}

global {
  roles = ["viewer", "editor", "admin", "evil_genius"];

  "viewer" if "editor";
  "editor" if "admin";
  "editor" if "evil_genius";
}

resource todo {
  permissions = ["can_read_todos", "can_create_todo", "can_update_todo", "can_delete_todo"];

  "can_read_todos" if global "viewer";
  "can_create_todo" if global "editor";
  "can_update_todo" if global "evil_genius";
  "can_delete_todo" if global "admin";
}

has_permission(user: user, action: String, todo: todo) if
  action in ["can_update_todo", "can_delete_todo"] and
  has_role(user, "editor") and
  email matches String and
  email(user, email) and
  ownerID(todo, email);

has_permission(_: user, "can_read_user", _: user);
