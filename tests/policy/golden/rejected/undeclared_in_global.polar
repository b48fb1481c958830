actor User {}
actor Bot {}
global { roles = ["admin"]; }
resource Repo { roles = ["reader"]; "reader" if global "amdin"; }
