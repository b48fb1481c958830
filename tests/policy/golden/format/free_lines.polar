


p("one");
p("two");



p("three");
# of four
p("four");

# of nothing

p("five");
resource A {

  roles = ["a"];


  "a" if "b";
  "b" if "c";

}
resource B {}
resource C {}
p("six");
resource D { "a" if "b"; }
resource E { "a" if "b"; }
# of E
p(x) if
  q(x) and

  # the second half
  r(x) and


  s(x);
q() if
  a() and

  b();
