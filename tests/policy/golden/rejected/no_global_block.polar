actor User {}
actor Bot {}
resource Repo { roles = ["reader"]; "reader" if global "admin"; }
