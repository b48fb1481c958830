"""A plan -> SQL.

`text` is SQL whose parts are rendered later, `render` renders a plan for any source of facts, and `stored` for the
fact table, now or as of a revision. `rounds` evaluates nonlinear recursion in several statements. `frames` is what
stands around a statement, and `dialects` what differs between SQLite and PostgreSQL.
"""
