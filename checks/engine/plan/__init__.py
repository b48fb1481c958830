"""Turn clauses into a plan: what is read, joined and tested, independent of SQL.

`planner` plans a question. `unfold` resolves the literals of a `draft` one by one, in the order and by the strategies
that `draft` chooses, with nested plans as subqueries. `open_values` tells which ids stand for all values of a variable
that nothing binds. `plan` is the result.
"""
