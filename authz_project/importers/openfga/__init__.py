"""Models, tuples and store files as OpenFGA and its command line write them.

`words` and `dsl` read the modelling language, `json_model` the same as JSON, `modules` models in several files;
`tuples` and `stores` read data and tests.
"""
