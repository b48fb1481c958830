// all of it
p(x); /* or
a part */ q(x);
