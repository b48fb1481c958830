# An attribute with a literal: what is published may be read by all.
actor User {}

resource Post {
  roles = ["author"];
  permissions = ["read", "edit"];
  "read" if has_status(resource, "published");
  "read" if "author";
  "edit" if "author" and has_status(resource, "draft");
}

has_permission(_: User, "read", post: Post) if
  has_status(post, status) and
  status in ["archived", "pinned"];

test "by status" {
  setup {
    has_status(Post{"p"}, "published");
    has_status(Post{"d"}, "draft");
    has_status(Post{"x"}, "archived");
    has_role(User{"ann"}, "author", Post{"d"});
    has_role(User{"ann"}, "author", Post{"p"});
  }
  assert allow(User{"bob"}, "read", post: Post) iff post in [Post{"p"}, Post{"x"}];
  assert allow(User{"ann"}, "read", Post{"d"});
  assert allow(User{"ann"}, "edit", post: Post) iff post in [Post{"d"}];
  assert_not has_status(Post{"p"}, "Published");
}
