"""The diagram of a policy: `graph` finds what grants what, `drawing` lays it out, and `page` shows it."""
