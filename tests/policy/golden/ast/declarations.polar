declare is_public(Repository);
declare has_relation(Repository, String, Organization);
declare nothing();
