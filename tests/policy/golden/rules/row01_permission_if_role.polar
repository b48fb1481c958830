actor User {}
resource Repo { roles = ["reader"]; permissions = ["read"]; "read" if "reader"; }
