actor User {}
actor Bot {}
declare p();
