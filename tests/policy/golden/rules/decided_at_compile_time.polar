actor User {}
a(x: User) if b(x) and 1 < 2 and "a" != "b" and true and not false;
c(x: User) if b(x) and 2 < 1;
d(x: User) if b(x) and (false or "a" = "b" or e(x));
f(x: User) if b(x) and x = User{"ann"} and x = User{"bob"};
g(x: User) if b(x) and (false or not true);
h(x: User) if b(x) and not (false and e(x));
i(x: User) if b(x) and x != x;
