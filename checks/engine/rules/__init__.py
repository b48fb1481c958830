"""Prepare rules for planning: `ruleset` returns the clauses that can make a call true.

`clauses` are rules with concrete types, which `specialise` creates from a program; `rewrite` simplifies them, and
`recursion` makes recursive ones linear. Limits on the time of all this are in `clauses`.
"""
