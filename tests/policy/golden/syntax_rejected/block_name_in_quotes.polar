actor "User" {}
