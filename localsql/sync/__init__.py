"""Keep facts in sync with rows in the application's own databases.

Read it in this order:

* `config`   the file that maps rows to facts
* `sources`  reads rows, and connects to SQL databases
* `run`      one run over all patterns: compare stored facts with rows, by a merge in id order, report, apply
* `watch`    repeats runs, and serves metrics about them
* `outbox`   the reverse: changes that an application writes to a table in its own transactions
"""
