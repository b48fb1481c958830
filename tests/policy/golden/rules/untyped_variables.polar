actor User {}
actor Computer {}
resource File {}
hello(x) if is_friendly(x);
typed(x: User) if is_friendly(x);
expired(file: File) if expires_at(file, time) and time < @current_unix_time;
declare owns(User, File);
declare owns(Computer, File);
declare port(Computer, Integer);
owner(x, y) if owns(x, y);
server(x) if owns(x, _) and port(x, _);
reach(x, y) if link(x, z) and reach(z, y);
reach(x: Computer, y: Computer) if link(x, y);
chain(x) if owner(x, y) and server(x) and not owns(x, y);
alone(x) if not owns(x, _y) and not port(x, _p);
