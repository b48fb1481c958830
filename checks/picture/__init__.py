"""The diagram of a policy: `graph` finds what grants what, `drawing` draws it, and `page` shows it."""
