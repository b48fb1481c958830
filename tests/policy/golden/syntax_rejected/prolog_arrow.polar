p(x) :- q(x);
