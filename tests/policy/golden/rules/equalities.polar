actor User {}
resource Doc {}
a(x: User, y) if x = y;
b(x) if x = "a" and c(x, y) and y = x;
d(x: User) if e(x, y) and y = z and f(z, w) and "s" = w;
g(t) if t = @current_unix_time;
h(x: Doc) if at(x, t) and t = @current_unix_time;
i(x: Doc) if at(x, t) and (t = @current_unix_time or t = 3);
j(x) if "a" = "a" and k(x) and _ = x;
l(x) if x in ["a"] and m(x);
