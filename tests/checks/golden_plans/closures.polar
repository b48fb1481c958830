# Relations that are reached by steps: both ways, and past nobody who is suspended.
actor User {}
actor Team {}

resource Doc { permissions = ["see", "edit"]; relations = { owner: User, team: Team }; }

friend(x: User, y: User) if knows(x, y);
friend(y: User, x: User) if friend(x, y);
friend(x: User, z: User) if friend(x, y) and friend(y, z) and not suspended(y);

member(x: Actor, y: Team) if joined(x, y);
inside(x: Team, y: Team) if member(x, y);
inside(x: Team, z: Team) if inside(x, y) and inside(y, z) and not suspended(y);

has_permission(u: User, "see", d: Doc) if friend(u, v) and has_relation(d, "owner", v);
has_permission(u: User, "edit", d: Doc) if member(u, t) and inside(t, o) and has_relation(d, "team", o);
