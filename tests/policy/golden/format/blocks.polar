actor User {}
actor   Team extends Group ,Party,{ }
global{roles=["admin",];}
# Folders hold documents,
# and other folders.
resource Folder { permissions = [ "read" , "write" ]; roles=[]; relations={parent:Folder,owner:User,}; "read" if "owner"; role if role on "parent"; relations = {};
# nothing here
}
resource Document extends Thing_with_a_long_name, Another_thing_with_a_long_name, A_third_thing_with_a_long_name {
  # only a comment
}
declare is_public(Document);;declare has_many_arguments(Folder_of_a_very_long_name, Document_of_a_very_long_name, String);
test fixture tree { has_relation(Folder{"a"},"parent",Folder{"b"});fixture other; }
test fixture other{}
test "of a test" { setup { fixture tree; }
  assert allow(User{"ann"},"read",Folder{"a"});

  assert_not allow(User{"bob"},"read",f:Folder) iff f not in [Folder{"a"},Folder{"b"}];
  assert allow(User{"somebody with a long name"}, "read", folder: Folder) iff folder in [Folder{"first"}, Folder{"second"}, Folder{"third"}, Folder{"fourth"}, Folder{"fifth"}, Folder{"sixth"}];
}
test "no setup" { setup {} assert p(); }
