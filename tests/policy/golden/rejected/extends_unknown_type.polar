actor User {}
actor Bot {}
resource Doc extends Fil {}
resource File {}
resource X extends Nowhere {}
