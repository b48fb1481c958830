p(x) if a(x) && b(x) || !c(x) and x <> 3 and x =< 4 and x => 5 and x === 6;
