type has_role(x: Actor, y: String);
