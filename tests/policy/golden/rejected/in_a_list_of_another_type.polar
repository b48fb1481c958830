actor User {}
actor Bot {}
p(x: User) if x in ["ann", "bob"];
