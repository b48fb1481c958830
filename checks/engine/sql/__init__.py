"""Render a plan as SQL.

`text` is SQL whose parts are rendered later, and has the differences between SQLite and PostgreSQL. `render` renders a
plan for any source of facts, and `stored` for the fact table, now or as of a revision. `rounds` evaluates nonlinear
recursion in several statements.
"""
