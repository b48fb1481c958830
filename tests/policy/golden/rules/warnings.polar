actor User {}
resource Doc { permissions = ["read"]; "read" if is_seen(resource, by); }
a(user: User, doc: Doc) if b(user);
c(user: User) if d(user, when);
e(User, Doc) if f(User, Doc);
g(x: User) if h(x, y) and i(y);
declare h(User, Doc);
declare i(User);
j(x: User) if k(x) and not x matches Actor;
