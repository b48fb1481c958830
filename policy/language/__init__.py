"""Parse the text of a policy to its syntax tree, in which nothing is resolved yet.

Read it in this order:

* `source`                  the text, places in it, and the exception that says what is wrong with it
* `lexer`, `grammar`        tokens, and the productions; `nodes` builds the nodes of `ast`, the syntax tree
* `parser`                  runs PLY, and describes syntax errors
* `printer`, `format`       the tree as canonical text, and the layout of a text with its comments
* `names`, `completion`     for editors: where each name stands, and what can stand at a position
"""

from policy.language.parser import parse
from policy.language.printer import print_policy

__all__ = ["parse", "print_policy"]
