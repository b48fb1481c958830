actor User {}
resource Repo { permissions = ["read", "write"]; "read" if "write"; }
