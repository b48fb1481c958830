# The parent of a document is a folder, or else a site that it is published on.
actor User {}
resource Site { roles = ["reader"]; }
resource Folder { roles = ["reader"]; }
resource Doc { roles = ["reader"]; relations = { parent: Folder }; }

has_role(u: User, role: String, d: Doc) if has_relation(d, "parent", place) and has_role(u, role, place);
has_relation(d: Doc, "parent", s: Site) if published(d, s);
