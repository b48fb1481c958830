"""Keep facts in sync with rows in the application's own databases.

Read it in this order:

* `config`   the file that says which rows are facts, and where they are
* `sources`  reads the rows, and connects to databases with tables
* `compare`  compares the stored facts of a pattern with its rows, in one order of ids
* `run`      one pass over all patterns: compare, report, apply
* `watch`    repeats a pass, and serves metrics about it
* `outbox`   the other way: changes that an application writes to a table in its own transactions
"""
