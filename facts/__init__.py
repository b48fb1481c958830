"""Facts: who is what to whom. They are stored, changed, listed, and available as of any revision.

Read it in this order:

* `wire`, `notation`             a fact as JSON, and in text form
* `models`, `numbering`          the tables, and the number of each signature
* `accept`                       which facts the active policy accepts
* `store`, `group_commit`        changes: one transaction each, or one for a group of writers; `table` writes many rows
* `read`, `keyset_pages`         the stored facts, in pages
* `ends`, `pruning`              facts with an expiry, and pruning of history
* `feed`, `history`              the change feed, and what changed when
* `views`, `pages`, `admin`      the endpoints and the admin
"""
