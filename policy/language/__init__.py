"""Parse the text of a policy to its syntax tree, in which nothing is resolved yet.

Read it in this order:

* `source`                  the text, positions in it, and the exception that reports its errors
* `ast`                     the syntax tree, and the tree as canonical text
* `grammar`                 the productions, and the functions that build the nodes of the tree
* `parser`                  splits the text into tokens, runs PLY, and describes syntax errors
* `format`                  the formatter, which keeps comments
* `names`, `completion`     for editors: the occurrences of each name, and completions at a position
"""

from policy.language.parser import parse

__all__ = ["parse"]
