"""Copies of the database: how they are made, and how one is known to be good before it is needed.

`sqlite_copy` copies a file while others write to it, and `dump_call` says how PostgreSQL's own program does so. A copy
is looked at outside (`archives`), brought to a database of its own (`scratch`), and there the same is asked of it as of
any database: `contents`.
"""
