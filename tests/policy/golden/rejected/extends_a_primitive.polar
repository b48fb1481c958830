actor User extends String {}
