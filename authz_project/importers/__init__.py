"""What people bring from other engines of the same kind: their models, tuples and tests, as a policy, facts and tests.

`openfga` and `spicedb` read the files of those engines into the types of `model`. The rest is shared: `polar` writes
a policy for people, `facts` says what tuples are stored as, and `report` names what has no equal here, with its line.
"""
