actor User {}

has_role(_: User, "member")   # every user

resource Repo {}
