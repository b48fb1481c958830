actor User {}
actor Bot {}
resource Org { roles = ["member"]; permissions = ["invite"]; relations = { owner: User }; }
resource Repo { roles = ["reader"]; relations = { org: Org }; "reader" if "membr" on "org"; "reader" if "zzz" on "org"; }
