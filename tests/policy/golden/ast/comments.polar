# A comment before anything.
actor User {} # after an item
resource Repo { # inside a block
  roles = [ # inside a list
    "admin", # between strings
    # on a line of its own
    "member"
  ];
  relations = { # inside a map
    owner: User, # after an entry
  };
  "admin" # between head and if
    if # after if
    "owner";
}
allow(actor, "x", r: Repo) if ( # inside parentheses
  is_open(r) # before and
  and # after and
  not # after not
  is_#not a call
  (actor)
);
say("# not a comment");
# the last line has no end