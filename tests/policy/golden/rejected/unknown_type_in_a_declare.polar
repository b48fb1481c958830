actor User {}
actor Bot {}
declare p(Usr, String);
