"""Policies of golden folders: a text beside what is expected of it."""

from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def cases(folder: str) -> list[pytest.param]:
    """The policies of a golden folder, as parameters named by file."""
    found = sorted((GOLDEN / folder).glob("*.polar"))
    return [pytest.param(path, id=path.stem) for path in found]
