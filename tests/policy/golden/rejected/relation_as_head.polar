actor User {}
actor Bot {}
resource Org { roles = ["member"]; permissions = ["invite"]; relations = { owner: User }; }
resource Repo { roles = ["reader"]; relations = { org: Org }; "org" if "reader"; }
