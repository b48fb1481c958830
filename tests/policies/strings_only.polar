# A program over Strings alone; no actor, no resource.
family("dog", "animal");
family("cat", "animal");
family("poodle", "dog");

is_a(x: String, y: String) if family(x, y);
is_a(x: String, y: String) if family(x, z) and is_a(z, y);

friends(x, y) if likes(x, y) and likes(y, x);
declare likes(String, String);

test "a family" {
  setup { likes("poodle", "cat"); likes("cat", "poodle"); likes("dog", "cat"); }
  assert is_a("poodle", "animal");
  assert is_a("poodle", what: String) iff what in ["dog", "animal"];
  assert_not is_a("animal", "poodle");
  assert_not is_a(true, "animal");
  assert_not is_a("poodle", 3);
  assert friends("cat", who: String) iff who in ["poodle"];
  assert_not friends("dog", "cat");
}
