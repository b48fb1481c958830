actor User {}
resource Org { roles = ["member"]; }
resource Post { roles = ["subscriber"]; relations = { org: Org }; "subscriber" if role on "org"; }
