text("plain", "\n\r\t\\\"", "\q\'", "line\
break", "tab	inside", "# 'quoted' // ;", "é ☃ 日本");
integers(0, -0, +7, 007, -9223372036854775808, 9223372036854775807);
wrapped(Integer{3}, Integer{"003"}, Integer{-3}, Boolean{true}, Boolean{"false"}, String{"x"}, String{3});
entities(User{"alice"}, User { "alice" }, User{7}, User{true}, ns::User{"a"}, Actor{"x"});
