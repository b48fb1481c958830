actor User {}
resource Org { roles = ["member"]; }
resource Repo { roles = ["reader"]; relations = { org: Org }; "reader" if "member" on "org"; }
