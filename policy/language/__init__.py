"""From the text of a policy to its syntax tree, in which nothing is resolved yet.

- Text: `source` holds the text and finds lines and columns in it. `lexer` splits it into tokens.
- Parsing: `plumbing` runs PLY, and `ply_types` has the types for it. `grammar` and `conditions` have the productions,
  `nodes` builds their nodes, `literals` makes values canonical, and `spans` finds where they stand.
- Errors: `notes` collects them, `unexpected` words syntax errors, and `rejection` is the exception that carries them.
- Result: `ast` is the tree, which `printer` writes back as text. `format/` lays out a text anew and keeps its comments.
- Editing: these read tokens alone, so the text need not parse. `outline` reads what a text declares,
  `cursor_context` the context of a position, `completion` what can stand there, and `names` where each name stands.
"""

from policy.language.plumbing import parse
from policy.language.printer import print_policy

__all__ = ["parse", "print_policy"]
