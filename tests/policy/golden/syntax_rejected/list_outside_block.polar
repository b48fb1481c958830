roles = ["admin"];
