"""What people bring from other engines of the same kind: their models, tuples and tests, as a policy, facts and tests.

`openfga` and `spicedb` read what those write, into what `model` says. From there on all is shared: `rules` writes a
policy for people, `facts` says what tuples are stored as, and `report` names what has no equal here, with its line.
"""
