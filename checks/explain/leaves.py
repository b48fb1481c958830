"""Looks up since when facts of an explanation are stored, and until when facts that are missing in it were stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from checks.asking.snapshot import Snapshot
from checks.explain.cases import ANY
from checks.explain.tree import Reason
from facts.models import COLUMNS, Row
from facts.validity import ValidityPeriod, latest_periods
from policy.rules.program import Signature


def with_periods(session: Snapshot, reasons: Sequence[Reason]) -> list[Reason]:
    """Return the reasons with what is known of their leaves, as of the session's moment.

    All leaves are looked up together, by few statements.
    """
    rows = {row for root in reasons for _, each in root.lines() if (row := _row(session, each)) is not None}
    if session.environment_id is None or not rows:
        return list(reasons)
    revision = session.past.revision if session.past else None
    periods = latest_periods(session.environment_id, sorted(rows), revision)
    return [_with_period(session, each, periods) for each in reasons] if periods else list(reasons)


def _row(session: Snapshot, reason: Reason) -> Row | None:
    """Return the row that a leaf has among the stored facts, or could have had; None if it has none."""
    if reason.atom is None or not (reason.kind == "missing" or (reason.kind == "fact" and reason.source == "stored")):
        return None
    predicate, args = reason.atom
    signature = Signature(predicate, tuple([arg.type for arg in args]))
    number = session.numbers.get(signature)
    if number is None or any(arg.id == ANY for arg in args) or not session.program.accepts(predicate, signature.types):
        return None
    return (number, *[*[arg.id for arg in args], *[""] * (len(COLUMNS) - len(args))])


def _with_period(session: Snapshot, reason: Reason, periods: Mapping[Row, ValidityPeriod]) -> Reason:
    row = _row(session, reason)
    period = periods.get(row) if row is not None else None
    if period is not None and reason.kind == "missing" and not _is_over(period):
        period = None
    because = tuple([_with_period(session, each, periods) for each in reason.because])
    return replace(reason, period=period, because=because)


def _is_over(period: ValidityPeriod) -> bool:
    """Say whether a fact that does not hold once did: it was removed, or has expired, swept or not."""
    return period.until is not None or period.expires_at is not None
