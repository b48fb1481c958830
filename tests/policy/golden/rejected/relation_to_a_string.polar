actor User {}
actor Bot {}
resource Doc { relations = { title: String }; }
