"""Back up the database, and verify a backup before it is needed.

`archive` creates backups and recognizes them. `verify` restores one to a scratch database, checks its contents, and
runs queries on it.
"""
