actor User {}
resource Doc {}
a(x) if x in ["a", "b", "a"];
b(x: User) if c(x, y) and y in [1, 2, "three"] and y < 2;
d(x: User) if e(x, y) and (y = "a" or y in ["b", "c"] or y = "d");
f(x: User) if e(x, y) and not y in ["a", "b"];
g(x: User) if "a" in ["a", "b"] and h(x);
i(x) if x in [User{"ann"}, Doc{"d"}] and x matches User;
j(x: User) if e(x, y) and (y = "a" or y != "b");
k(x: User) if h(x) and @current_unix_time in [1, 2];
