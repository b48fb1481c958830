actor User {}
}
