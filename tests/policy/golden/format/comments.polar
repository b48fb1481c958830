# The first line of a file.
#without a space, and kept so

    # further in

actor User {} # after an item
# about Repo
resource Repo # before a brace
{ # after a brace

  # before a list
  roles = [ # after a bracket
    "reader" # before a comma
    , "writer", # after a comma
    # on a line of its own

    # after a free line
    "owner"
    # the last in a list
  ] # before a semicolon
  ; # after a semicolon
  permissions = ["read", "write"]; # short
  relations = { parent # before a colon
    : # after a colon
    Org }; # an end

  # before the end of a block
}
# Operators go to the end of their line, and what is said about the next condition stays above it.
allow(actor: User, "read", repo: Repo)
  if has_role(actor, "reader", repo) # they may read
  # unless the repository is closed
  and not is_closed(repo) # see above
  # or blocked
  and not is_blocked(actor)
;
allow(actor: User, "write", repo: Repo) if
  has_role(actor, "writer", repo)
  # and is_open(repo)
;
allow( # in a call
  actor: User, # the first
  "own", repo: Repo # the last
) if # after if
  ( # in parentheses
    a(actor) or # or
    b(repo) # the end of a group
  ) and not # after not
  c(repo) and x = # after an operator
  3;
is_in(x) if x in # before a list
  ["a", # first
   "b"]; is_not_in(x) if x not # before in
   in ["a"]; # two statements were on this line
p(User{ # before a key
  "ann" # after a key
  }); # done
;
# after a stray semicolon
declare # after declare
  is_closed(Repo); declare is_blocked(User) # before an end
  ;
test # after test
"of comments" { # opened
  # before setup
  setup { # facts
    a(User{"ann"}); # one
    # the last fact
  }
  # before an assertion
  assert # after assert
    a(User{"ann"});

  # nothing comes after this
}
# about nothing


# the last line, without an end