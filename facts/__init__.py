"""Facts: who is what to whom, stored, changed, listed, and told of as of any revision.

Read it in this order:

* `wire`, `notation`             a fact as JSON, and as people write it
* `models`, `numbering`          the table, and the number of each signature
* `accept`                       which facts the active policy accepts
* `store`, `group_commit`        changes: one transaction each, or one for all that wait; `table` writes many rows
* `read`, `keyset_pages`         the stored facts, in pages
* `ends`, `pruning`              facts with an end, and history that is deleted
* `feed`, `history`              changes in order, and what changed when
* `views`, `pages`, `admin`      the endpoints and the admin
"""
