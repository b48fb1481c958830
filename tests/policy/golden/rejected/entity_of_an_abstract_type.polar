actor User {}
actor Bot {}
p(x: User) if q(x, Actor{"a"}, Resource{"b"});
