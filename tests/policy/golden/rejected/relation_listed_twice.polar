actor User {}
actor Bot {}
resource Doc { relations = { a: User, a: Bot }; }
