actor User {}
actor Bot {}
global { roles = ["admin"]; "admin" if owns(actor, resource); }
