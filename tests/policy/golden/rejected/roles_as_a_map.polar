actor User {}
actor Bot {}
resource Doc { roles = { a: User }; }
