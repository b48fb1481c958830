"""A policy for people out of a model: one block a type, shorthand wherever it says the same.

`apart` takes relations apart into what is stored and what follows; `names` gives everything a name that Polar can say;
`layout` settles how each relation is said and what its tuples are stored as; `formulas` and `blocks` write the rules,
`conditions` what conditional tuples wait for, `scenarios` the tests; `text` puts it all on paper.
"""
