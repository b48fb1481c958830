"""Rows of an outbox -> changes of facts, in the order of their ids, each exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import orjson

from facts import store
from facts.accept import FactRejected
from facts.changesets import changes_from_json
from facts.store import Change, Inserts
from localsql.sync.config import Outbox
from localsql.sync.errors import ConfigRejected, shown
from localsql.sync.outbox.drained_rows import Turn, TurnIsOver, forget, remember, turn_of
from localsql.sync.outbox.tables import Table, Written, opened
from policy.errors import AuthzError, MalformedRequest, TooLarge
from policy.offsets import changing
from policy.revisions import By

AUTHOR = By("outbox")
AT_ONCE = 100  # rows of one revision
OF_A_ROW = (MalformedRequest, FactRejected, TooLarge)  # errors in what a row says; any other error may pass, or is ours
_SHOWN = 300  # characters of a row that is left out


class RowRejected(AuthzError):
    """A row is no valid change, and the rows behind it wait for it."""

    def __init__(self, row: Written, reason: str):
        self.row, self.reason = row, reason
        super().__init__(f"{sentence(row, reason)}; correct it in the table, or have --skip-bad take it out")


def sentence(row: Written, reason: str) -> str:
    more = "…" if len(row.changes) > _SHOWN else ""
    return f"row {row.number} of the outbox, {shown(row.changes[:_SHOWN])}{more}: {shown(reason)}"


@dataclass
class Drained:
    """What was drained so far."""

    rows: int = 0
    skipped: int = 0
    revisions: int = 0


def drain(
    environment_id: int, outbox: Outbox | None, skips_bad: bool, report_bad: Callable[[str], None], done: Drained
) -> None:
    """Drain the outbox until it is empty. A wrong row is raised; with `skips_bad`, it is reported and taken out."""
    if outbox is None:
        raise ConfigRejected("outbox", "is missing; it names the `db`, and the `table` if that is another")
    with opened(outbox) as table:
        drainer = _Drainer(environment_id, table, skips_bad, report_bad, done)
        while drainer.has_more():
            pass


@dataclass
class _Drainer:
    environment_id: int
    table: Table
    skips_bad: bool
    report_bad: Callable[[str], None]
    done: Drained
    alone: int = field(default=0)  # rows that are to be made one by one, as one among them is wrong

    def has_more(self) -> bool:
        """Drain one batch, and say whether there may be more."""
        try:
            return self._part()
        except TurnIsOver:  # what the other process has made is gone, or is remembered now
            return True

    def _part(self) -> bool:
        turn = turn_of(self.environment_id, self.table.identity)
        if turn.rows:
            self._finish(turn)
            return True
        rows = self.table.first(1 if self.alone else AT_ONCE)
        if not rows:
            return False
        try:
            self._make(turn, rows)
        except OF_A_ROW as error:
            self._find_wrong(rows, error.message)
            return True
        self.alone = max(0, self.alone - 1)
        self._finish(Turn(turn.state, turn.number + 1, {row.number: row.digest for row in rows}))
        return True

    def _make(self, turn: Turn, rows: Sequence[Written]) -> None:
        changes = [change for row in rows for change in changes_of(row)]
        with changing():
            remember(turn, rows)  # always locked before an environment's turn, and only by drains: no deadlock
            if changes:
                store.apply(self.environment_id, changes, AUTHOR)
        self.done.rows += len(rows)
        self.done.revisions += bool(changes)

    def _finish(self, turn: Turn) -> None:
        """Take the rows that are made out of the outbox, and forget them.

        A row that got the same id again says something else: by its digest it is another row, and stays.
        """
        self.table.remove(turn.rows)
        forget(turn)

    def _find_wrong(self, rows: Sequence[Written], reason: str) -> None:
        if len(rows) > 1:
            self.alone = len(rows)
            return
        if not self.skips_bad:
            raise RowRejected(rows[0], reason)
        self.report_bad(f"left out, {sentence(rows[0], reason)}")
        self.table.remove({rows[0].number: rows[0].digest})  # if somebody has corrected it by now, it is read again
        self.alone = 0
        self.done.skipped += 1


def changes_of(row: Written) -> list[Change]:
    """Return the changes that the row says, in the form of the body of POST /batch.

    Facts may have come to their ends while the row waited.
    """
    try:
        said = orjson.loads(row.changes)
    except orjson.JSONDecodeError as error:
        raise MalformedRequest("changes", f"is not JSON: {error}") from None
    changes = changes_from_json(said, "changes")
    return [replace(each, is_late=True) if isinstance(each, Inserts) else each for each in changes]
