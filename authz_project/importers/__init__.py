"""Import models, tuples and tests from other engines as a policy, facts, and tests of the policy.

Read it in this order:

* `ir`                  an intermediate representation of what all engines express, and the report on its conversion
* `files`               reads files with the place of each value, and parses texts by grammars
* `openfga`, `spicedb`  read the files of each engine; `language` has what their languages share, `cel` the conditions
* `layout`              how each relation is expressed in Polar
* `facts`               tuples as facts, and tests as tests of the policy
* `policy`              the model as a policy, with `conditions`; `terms` builds formulas
* `convert`             the steps of an import: convert, report, run the tests, load
"""
