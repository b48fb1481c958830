actor User {}
actor Bot {}
resource Base { roles = ["read"]; }
resource Doc extends Base { permissions = ["read"]; }
