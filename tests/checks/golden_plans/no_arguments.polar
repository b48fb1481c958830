# Switches for the whole house: predicates without arguments.
actor User {}
resource Door { permissions = ["open", "lock"]; }

night() if clock("night") and not alarm();
alarm() if clock("midnight") or (smoke(d) and d matches Door and not tested(d));
has_permission(u: User, "open", d: Door) if has_key(u, d) and not night();
has_permission(_: User, "open", _: Door) if alarm();
has_permission(u: User, "lock", d: Door) if has_key(u, d) and (night() or is_guard(u));
