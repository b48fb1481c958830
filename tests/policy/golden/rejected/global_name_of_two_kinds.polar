global { roles = ["admin"]; permissions = ["admin"]; "admin" if "admin"; }
