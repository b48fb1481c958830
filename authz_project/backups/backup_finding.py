"""What was found of a backup, or of the database that it holds: a line each."""

from collections.abc import Iterable
from typing import NamedTuple

from authz_project.schema_state import Migration, SchemaState


class BackupFinding(NamedTuple):
    """What was looked at, and what is to be said of it."""

    what: str
    text: str
    is_good: bool = True

    def __str__(self) -> str:
        return f"{'ok' if self.is_good else 'WRONG':<5}  {self.what}: {self.text}"


def wrong(what: str, text: str) -> BackupFinding:
    return BackupFinding(what, text, is_good=False)


def schema_finding(state: SchemaState) -> BackupFinding:
    """Say whether the migrations of a database are this program's."""
    if state.unknown:
        return wrong("form", f"it is of a newer version of the program, which made {_listed(state.unknown)}")
    if state.missing:
        older = f"it is of an older version; `serve` will bring it up by {_listed(state.missing)}"
        return BackupFinding("form", older)
    return BackupFinding("form", "it is this version's")


def _listed(migrations: Iterable[Migration]) -> str:
    return ", ".join(f"{app} {name[:4]}" for app, name in migrations)
