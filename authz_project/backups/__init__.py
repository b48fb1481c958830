"""Back up the database, and verify a backup before it is needed.

`archive` makes a copy and recognises one. `verify` restores it to a scratch database, checks its contents, and asks it
questions.
"""
