actor User {}
resource Org { roles = ["member"]; }
resource Repo { roles = ["member"]; relations = { org: Org }; role if role on "org"; }
