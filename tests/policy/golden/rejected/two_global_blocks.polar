global {}
global { roles = ["a"]; }
