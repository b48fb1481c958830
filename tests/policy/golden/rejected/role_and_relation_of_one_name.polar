actor User {}
actor Bot {}
resource Doc { roles = ["owner"]; relations = { owner: User }; }
