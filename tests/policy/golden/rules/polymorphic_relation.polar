actor User {}
resource Org { roles = ["member"]; }
resource Team { roles = ["member"]; }
resource Repo { roles = ["reader"]; relations = { parent: Resource, by: Actor }; "reader" if "member" on "parent"; "reader" if role on "by"; }
