actor User {}
