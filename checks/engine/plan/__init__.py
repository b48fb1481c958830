"""Clauses -> a plan: what is read, joined and tested, without a word of SQL.

`planner` plans a question. `unfold` resolves the literals of a `draft` one after another, in the order and by the
strategy that `choose` gives; `subqueries` has what stands in a plan of its own. `plan` is the result.
"""
