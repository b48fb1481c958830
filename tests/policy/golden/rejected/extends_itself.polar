actor User {}
actor Bot {}
resource Doc extends Doc {}
