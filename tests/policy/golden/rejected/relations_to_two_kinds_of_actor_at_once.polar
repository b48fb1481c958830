actor User {}
actor Bot {}
resource Repo { roles = ["admin"]; relations = { owner: User, runner: Bot }; "admin" if "owner" and "runner"; }
