actor User {}
actor Bot {}
global { roles = ["admin"]; "admin" if "admin" on "org"; }
