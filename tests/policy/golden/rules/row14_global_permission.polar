actor User {}
global { permissions = ["read everything"]; }
resource Repo { permissions = ["read"]; "read" if global "read everything"; }
