"""Write a model as a policy: one block per type, in shorthand wherever it says the same.

`relations` rewrites relations until each is stored or derived, `layout` decides how each is expressed; `conditions`,
`policy` and `scenarios` write conditions, rules and tests. `terms` builds formulas.
"""
