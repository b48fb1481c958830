"read" if "reader";
