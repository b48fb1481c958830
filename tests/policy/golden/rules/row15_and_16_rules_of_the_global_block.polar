actor User {}
global {
  roles = ["admin", "owner"];
  permissions = ["invite"];
  "invite" if "admin" and is_active(actor);
  "admin" if "owner";
}
