"""Rules made ready for planning: `ruleset` gives the clauses that can make a call true.

`clauses` are rules with concrete types, which `specialise` makes of a program; `rewrite` simplifies them, and
`recursion` makes recursive ones linear. `limits` bounds the time of all of it.
"""
