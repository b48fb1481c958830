p("abc
def");
