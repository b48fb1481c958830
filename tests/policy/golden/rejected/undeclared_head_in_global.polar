global { roles = ["admin"]; "adnim" if "admin"; "admin" if "zzz"; }
