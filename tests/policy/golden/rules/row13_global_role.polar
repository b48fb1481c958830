actor User {}
global { roles = ["admin"]; }
resource Repo { permissions = ["read"]; "read" if global "admin"; }
