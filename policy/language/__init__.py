"""From text to syntax tree: what was written, with nothing resolved.

`source` is the text and places in it; `lexer` makes tokens of it; `grammar` has the productions and `nodes` what they
build; `literals` makes values canonical; `plumbing` runs PLY, and `ply_types` describes it; `unexpected` words syntax
errors, and `rejection` is what they are raised as; `ast` is the result, which `printer` writes back as text. `format/`
lays a text out anew, with its comments. What helps to write one reads words alone: `outline` what a text names,
`completion` what can stand at a place, `names` where each name stands.
"""

from policy.language.plumbing import parse
from policy.language.printer import print_policy

__all__ = ["parse", "print_policy"]
