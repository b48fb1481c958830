"""Facts that are kept in step with the rows they come from, in the application's own databases.

In the order of what happens: `config` (what a file says, which `reading`, `databases`, `asked` and `variables` make of
its text), `sources` (one reader for each kind of database: rows as they are there), `rows` (rows as ids of facts; what
is none), `sorting` (both sides in one order), `stored` (our side), `compare` and `plans` (what differs), `apply` (makes
it so), `second_look` (whether rows of what was stored went meanwhile), `report` (says it), `run` (all of it once),
`watch` (again and again), `metrics`. `outbox` is the other way to stay in step: changes that the application writes
down in its own transactions, each made here exactly once.
"""
