actor User {}
actor Bot {}
resource Doc extends User {}
resource X extends Actor {}
