"""Parse the text of a policy to its syntax tree, in which nothing is resolved yet.

Read it in this order:

* `source`                  the text, positions in it, and the exception that reports its errors
* `lexer`, `grammar`        tokens, and the productions; `nodes` builds the nodes of `ast`, the syntax tree
* `parser`                  runs PLY, and describes syntax errors
* `printer`, `format`       the tree as canonical text, and the formatter, which keeps comments
* `names`, `completion`     for editors: the occurrences of each name, and completions at a position
"""

from policy.language.parser import parse
from policy.language.printer import print_policy

__all__ = ["parse", "print_policy"]
