actor User {}
actor Bot {}
p(x: User, y: Bot) if x = y;
