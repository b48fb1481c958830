actor User {}
resource Repo { roles = ["reader"]; permissions = ["read"]; "reader" if "read"; }
