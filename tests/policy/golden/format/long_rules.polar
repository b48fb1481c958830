p(x) if q(x);
p(x) if q(x) and r(x);
p(x) if q(x) and r(x) and s(x);
p(x) if q(x) and r(x) or s(x);
p(x) if (q(x) or r(x)) and not (s(x) and not t(x));
p(x) if ((q(x)));
allow(actor: Actor, action: String, resource: Resource) if has_permission(actor, action, resource);
allow(actor: Actor, action: String, resource: Resource) if has_permission(actor, action, resource_);
allow(actor: User, action: String, resource: Repository) if not is_blocked(actor) and has_permission(actor, action, resource);
grants(user: User, role: String, repo: Repository) if org matches Organization and has_relation(repo, "organization", org) and (has_role(user, "admin", org) and not is_suspended(user, org) or has_role(user, "owner", org) and is_confirmed(user, org) or global_owner(user)) and role in ["reader", "writer"];
a_rule_with_a_long_name(first_argument: FirstType, second_argument: SecondType, third_argument: ThirdType) if q(first_argument);
a_fact_with_a_long_name("the first of the values", "the second of the values", "the third of the values", 4);
either(x) if one_of_them(x, "with a long argument to fill the line") and another_of_them(x, "with a long argument") or third(x);
one(x) if a_call_that_is_long(x, "the first of the values", "the second of the values", "the third of the values", 4);
listed(x: String) if x in ["first of the values", "second of the values", "third of the values", "fourth of the values"];
unlisted(x: String) if x matches String and x not in ["first of the values", "second of the values", "third of the value", "four"];
expires(x) if x matches! Integer and -3 <= x and x<-1 and @current_unix_time<x;
resource Repository {
  roles = ["reader", "triager", "writer", "maintainer", "administrator", "security manager", "billing manager"];
  relations = { organization: Organization, parent: Repository, maintainer: Team, owner: User, sponsor: Company };
  "read" if "reader" or "triager" or "writer";
  "read" if "reader" or "triager" or "writer" or "maintainer" or "administrator" or "security manager" or "billing manager";
  "push" if "writer" and not is_archived(resource) and not is_locked(resource) or global "administrator of everything";
}
