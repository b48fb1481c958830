"""Models, tuples and store files as OpenFGA and its command line write them.

`words` and `dsl` read the modelling language, `json_model` the same as JSON, each into a part of a model
(`model_parts`); `models` puts the parts of several files together; `tuples` and `stores` read data and tests.
"""
