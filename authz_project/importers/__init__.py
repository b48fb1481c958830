"""Import models, tuples and tests from other engines, as a policy, facts and tests of the policy.

Read it in this order:

* `model`                 what any of them says, in one form, and the report of what cannot be carried over
* `files`                 reads files with the place of each value, and writes results
* `openfga/`, `spicedb/`  read the files of each engine; both use `cel`, for conditions, and `values`
* `facts`                 tuples as facts
* `polar/`                the model as a policy: `relations`, `layout`, `conditions`, `policy`, `scenarios`
* `command`               what the import commands share
"""
