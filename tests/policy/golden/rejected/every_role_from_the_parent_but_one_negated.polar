actor User {}
actor Bot {}
resource F { roles = ["a", "b"]; relations = { up: F }; role if role on "up" and not "b"; }
