"""Facts: who is what to whom. They are stored, changed, listed, and available as of any revision.

Read it in this order:

* `wire`                         a fact as JSON, and in text form
* `models`, `numbering`          the tables, and the number of each signature
* `table`                        every statement about stored and past facts
* `accept`                       which facts the active policy accepts
* `store`                        changes: one transaction each, or one for a group of writers
* `loading`                      a file of facts, in one transaction
* `read`, `keyset_pages`         the stored facts, in pages
* `feed`, `history`              the change feed; what changed when, and what becomes of old history
* `views`, `pages`, `admin`      the endpoints and the admin
"""
