"""Keeps facts in step with the rows they come from, in the application's own databases.

The modules in the order in which they are used: `config` (what a file says; `reading`, `databases`, `asked`, `tidied`
and `variables` make it of the text), `sources` (one reader for each kind of database: rows as they are there), `rows`
(rows as ids of facts, and which rows are none), `sorting` (both sides in one order), `stored` (our side), `compare`
(what differs, kept in files by `spill`), `apply` (makes the changes), `second_look` (finds facts whose rows went before
they were stored), `report` (says what was found), `run` (all of it once), `watch` (again and again), `metrics`.
`outbox` is the other way to stay in step: changes that the application writes down in its own transactions, each made
here exactly once.
"""
