actor User {}
resource Org { permissions = ["read"]; }
resource Repo { permissions = ["read"]; relations = { org: Org }; permission if permission on "org"; }
