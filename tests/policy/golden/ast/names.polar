actor Größe {}
actor 用户 {}
actor ☃ {}
is_ok?(a::b::c, _x, x1, x__1) if my::pred?(a::b::c) and x1 = _x;
nots(iffy, android, order, inside, onto, matchesx, truest, falsely, cutter, offer, printed);
