p("abc);
q(x);
r(1.5);
