p("a \"quoted\" \\ string", "a\nline\ttab", "\q", "# no comment", "日本 \u00e9", "a;b,c(d");
p("a line \
  break") if q("é");   #   what   is in a comment stays   
größe(日本: Größe, ok?) if is::inside::a::path(日本) and ok? = 3;
