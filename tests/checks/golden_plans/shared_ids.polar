# The same variable in several places, and types whose ids are the same texts.
actor User {}
resource Account { permissions = ["close"]; relations = { twin: Account }; }
resource Ledger { permissions = ["read"]; relations = { account: Account }; }

same(x, x) if listed(x);
linked(a: Account, b: Account) if has_relation(a, "twin", b);
linked(a: Account, b: Account) if has_relation(b, "twin", a);
linked(a: Account, c: Account) if linked(a, b) and linked(b, c);
has_permission(u: User, "close", a: Account) if owns(u, a) and not (owns(v, a) and v != u);
has_permission(u: User, "close", a: Account) if linked(a, b) and owns(u, b) and a != b;
has_permission(u: User, "read", l: Ledger) if has_relation(l, "account", a) and same(a, a) and owns(u, a);
