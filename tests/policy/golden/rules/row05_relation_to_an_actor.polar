actor User {}
actor Bot {}
resource Repo { roles = ["admin"]; relations = { owner: User }; "admin" if "owner"; }
