actor Administrator {}
resource Organization { roles = ["member"]; }
resource Repository { roles = ["reader"]; permissions = ["read"]; relations = { organization: Organization }; "read" if "reader"; "reader" if "member" on "organization"; }
test "t" { setup { has_relation(Organization{"acme"}, "repository", Repository{"anvil"}); } assert_not allow(Administrator{"ann"}, "read", Repository{"anvil"}); }
