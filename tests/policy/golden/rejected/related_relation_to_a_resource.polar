actor User {}
actor Bot {}
resource Org { roles = ["member"]; permissions = ["invite"]; relations = { owner: User }; }
resource Team { relations = { org: Org }; }
resource Repo { roles = ["reader"]; relations = { team: Team }; "reader" if "org" on "team"; }
