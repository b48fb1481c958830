actor User {}
resource Dog {}
has_permission(user: User, "pet", dog: Dog) if are_friends(user, dog);
