"""Conditions in the Common Expression Language, as far as comparisons go.

`syntax` makes a tree of the text; `meaning` makes a test of the tree, in which `Unsupported` stands for what has no
equal here: functions, lists made by others, fractions.
"""

from authz_project.importers.cel.meaning import test_of
from authz_project.importers.cel.syntax import NotAnExpression, parsed

__all__ = ["NotAnExpression", "parsed", "test_of"]
