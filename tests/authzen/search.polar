# Everybody sees the records of their department and their own; managers see all, and edit those of their department.
actor user {}

resource record {
  permissions = ["view", "edit", "delete"];
  relations = { owner: user };

  "view" if "owner";
  "edit" if "owner";
  "delete" if "owner";
}

has_permission(user: user, "view", record: record) if
  department matches String and
  department(user, department) and
  department(record, department);

# What has a department is a record: without it, managers could view any id there may ever be.
has_permission(user: user, "view", record: record) if
  role(user, "manager") and
  department(record, department) and
  department matches String;

has_permission(user: user, "edit", record: record) if
  role(user, "manager") and
  department matches String and
  department(user, department) and
  department(record, department);
