# The first rule is about two actions. For any other one it holds for nobody, and is dropped.
actor User {}
resource Wall {}

may(u: User, action: String, w: Wall) if owns(u, w) and (action = "climb" and strong(u) or action = "paint" and artist(u));
may(u: User, "paint", w: Wall) if may(u, "sell", w);
