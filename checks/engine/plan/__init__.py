"""Turn clauses into a plan: what is read, joined and tested, independent of SQL.

`planner` plans a question. `unfold` resolves the literals of a `draft` one by one, in the order and by the strategies
that `draft` chooses, with nested plans as subqueries. `plan` is the result.
"""
