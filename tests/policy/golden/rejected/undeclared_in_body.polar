actor User {}
actor Bot {}
resource Org { roles = ["member"]; permissions = ["invite"]; relations = { owner: User }; }
resource Repo { roles = ["reader"]; permissions = ["read"]; "read" if "raeder"; "read" if "zzz"; }
