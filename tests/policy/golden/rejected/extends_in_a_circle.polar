actor User {}
actor Bot {}
resource A extends B {}
resource B extends C {}
resource C extends A {}
resource D extends A {}
