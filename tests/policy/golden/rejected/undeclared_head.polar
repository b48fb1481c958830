actor User {}
actor Bot {}
resource Org { roles = ["member"]; permissions = ["invite"]; relations = { owner: User }; }
resource Repo { roles = ["reader"]; "raeder" if "reader"; "other" if "reader"; }
