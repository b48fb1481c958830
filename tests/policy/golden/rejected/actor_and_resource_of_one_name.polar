actor User {}
actor Bot {}
resource User {}
