# The fixture of the certification scenario.
actor user {}

resource record {
  permissions = ["read", "write", "delete"];
  roles = ["owner", "reader"];

  "read" if "owner";
  "read" if "reader";
}

has_permission(user: user, "write", record: record) if
  has_role(user, "owner", record) and not status(record, "archived");

has_permission(user: user, "write", record: record) if
  role(user, "admin") and status(record, "archived");

has_permission(user: user, "delete", record: record) if
  has_role(user, "owner", record) and soft("delete", true);
