actor User {}
resource Box {}

inside(x: Box, z: Box) if inside(x, y) and inside(y, z) and not sealed(y);

friend(x: User, z: User) if friend(x, y) and friend(y, z) and not suspended(y);
friend(y: User, x: User) if friend(x, y);

reaches(u: User, b: Box) if friend(u, v) and holds(v, c) and inside(c, b);
