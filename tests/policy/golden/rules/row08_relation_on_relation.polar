actor User {}
actor Bot {}
resource Org { relations = { owner: User }; }
resource Repo { roles = ["admin"]; relations = { org: Org }; "admin" if "owner" on "org"; }
