actor User {}
actor Bot {}
resource A { roles = ["x"]; }
resource B { permissions = ["x"]; }
resource C { roles = ["y"]; relations = { parent: Resource }; "y" if "x" on "parent"; }
