actor User {}
actor Bot {}
resource Doc { relations = ["parent"]; }
