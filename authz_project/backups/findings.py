"""What was found of a database or of a copy: a line each."""

from typing import NamedTuple


class Finding(NamedTuple):
    """What was looked at, and what is to be said of it."""

    what: str
    text: str
    is_good: bool = True

    def __str__(self) -> str:
        return f"{'ok' if self.is_good else 'WRONG':<5}  {self.what}: {self.text}"


def wrong(what: str, text: str) -> Finding:
    return Finding(what, text, is_good=False)
