actor User {}
p(x: User) if q(x) and Foo{"a"} < 3 and 3 >= Foo{"b"};
r(x: User) if q(x, y) and y = Foo{"c"} and y > 3;
