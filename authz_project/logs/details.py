"""What PostgreSQL adds to an error, and no log is to have: values of rows, in `DETAIL` and the `CONTEXT` of a COPY."""

from __future__ import annotations

import re

_NEXT = r"(?=\n\n(?:The above exception|During handling of)|\Z)"  # of a traceback: the errors behind one another
_DETAILS = re.compile(rf"\n[^\W\d_]+:  .*?{_NEXT}", re.DOTALL)  # in whichever language the server speaks


def without_details(text: str) -> str:
    """Return an error's text, or a traceback, without them and what follows them."""
    return _DETAILS.sub("", text)
