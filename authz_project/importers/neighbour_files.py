"""Files that other files name: only what lies below the folder of the one that names it is read."""

from __future__ import annotations

from pathlib import Path


def neighbour_file(file: str | Path, named: str) -> Path | None:
    """Return the path of the file that is named; None where it lies elsewhere, be it by a link."""
    folder = Path(file).parent
    path = folder / named
    try:
        whole = path.resolve()
        inside = whole.is_relative_to(folder.resolve()) and whole != folder.resolve()
    except (OSError, RuntimeError, ValueError):  # links in a circle, and what names no file
        return None
    return path if inside else None
