actor User {}
global { relations = { a: User }; }
