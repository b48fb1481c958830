"""What policies are made of: each function adds one idea to a draft, with the facts and questions that go with it.

Permissions are negated only by later ones, and no role that anything negates comes from a permission, so that
almost every draft is stratified.
"""

from tests.properties.features import foundation, ladders, negation, recursion, shapes, values, wildcards

FEATURES = (*recursion.FEATURES, *negation.FEATURES, *wildcards.FEATURES, *values.FEATURES, *shapes.FEATURES)

LADDERS = ladders.FEATURES  # more than one idea each, and taken more often

__all__ = ["FEATURES", "LADDERS", "foundation"]
