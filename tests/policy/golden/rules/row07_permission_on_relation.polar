actor User {}
resource Folder { permissions = ["read"]; relations = { parent: Folder }; "read" if "read" on "parent"; }
