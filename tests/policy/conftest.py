"""Policies of golden folders: a text beside what is expected of it."""

from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"


def cases(folder: str) -> list[Path]:
    """The policies of a golden folder."""
    return sorted((GOLDEN / folder).glob("*.polar"))
