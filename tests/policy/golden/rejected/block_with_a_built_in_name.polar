actor Actor {}
resource String {}
