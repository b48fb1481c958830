actor User {}
resource Doc {}
a(x) if b(x) or c(x) or x = User{"ann"};
d(x: User) if b(x) and (c(x) or e(x, y) and (f(y) or g(y, _z)));
h(x: User, y: Doc) if (b(x) or c(y)) and (i(x, y) or true);
j(x) if k(x) and (x matches User and b(x) or x matches Doc and c(x));
l(x: User) if b(x) and (x = User{"ann"} or m(x));
n(x, y) if o(x, y) and (x = y or p(x));
