"""Change the stored facts. Each call is one transaction: all of its changes, in the given order, or none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from django.conf import settings
from django.db import connection

from facts.accept import check_facts
from facts.ends import Ends, check_ends, lasting, parted_by_end
from facts.models import COLUMNS, NewRow, Row
from facts.numbering import ending_numbers, let_end, signature_number, signature_numbers
from facts.read import id_conditions, matching
from facts.table import fact_table
from facts.wire import Fact, FactPattern, batch_from_json, exact_pattern, patterns_from_json, rows_of, some_end
from policy.active import program_of_version
from policy.errors import MalformedRequest, TooLarge
from policy.ground.journal import NOBODY, By, Done, Kind, WriterTurn, advance, changing, record
from policy.rules.program import Signature

# ---- past ---------------------------------------------------------------------------------------------------------
# Past facts: the net changes of a revision, computed after its changes have been made one after the other.
#
# A batch often deletes what it inserts again: `delete has_role(User:ann, _, Org:acme)`, followed by her roles. A fact
# that is the same before and after a revision has not changed, and is not recorded as changed.

_KEY = ("sig", *COLUMNS)
_SAME = " AND ".join(f"fact.{name} = past_fact.{name}" for name in _KEY)


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """How many facts a revision inserted that did not exist before, and deleted that did."""

    inserted: int = 0
    deleted: int = 0


def settle(numbers: Iterable[int], revision: int) -> None:
    """Cancel out facts that the revision both ended and began, of the signatures with these numbers."""
    here = f"past_fact.sig IN ({_listed(numbers)}) AND past_fact.until = %s"
    alike = "IS" if connection.vendor == "sqlite" else "IS NOT DISTINCT FROM"
    same = f"{_SAME} AND fact.expires_at {alike} past_fact.expires_at"
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM past_fact WHERE {here} AND since = until", (revision,))
        cursor.execute(
            f"UPDATE fact SET since = past_fact.since FROM past_fact WHERE {here} AND {same}"
            " AND fact.since = past_fact.until",
            (revision,),
        )
        # A stored fact has the `since` of its past fact only if the preceding statement restored it.
        restored = f"EXISTS (SELECT 1 FROM fact WHERE {same} AND fact.since = past_fact.since)"
        cursor.execute(f"DELETE FROM past_fact WHERE {here} AND {restored}", (revision,))


def changed(numbers: Iterable[int], first: int, last: int) -> dict[int, ChangeCounts]:
    """Return how many facts each of these revisions changed, of the signatures with these numbers."""
    listed = _listed(numbers)
    inserted: dict[int, int] = {}
    deleted: dict[int, int] = {}
    with connection.cursor() as cursor:
        counted = (("fact", "since", inserted), ("past_fact", "since", inserted), ("past_fact", "until", deleted))
        for table, column, counts in counted:
            cursor.execute(
                f"SELECT {column}, COUNT(*) FROM {table} WHERE sig IN ({listed}) AND {column} BETWEEN %s AND %s"
                f" GROUP BY {column}",
                (first, last),
            )
            for number, count in cursor.fetchall():
                counts[number] = counts.get(number, 0) + count
    return {each: ChangeCounts(inserted.get(each, 0), deleted.get(each, 0)) for each in range(first, last + 1)}


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(int(number)) for number in numbers) or "NULL"


# ---- store --------------------------------------------------------------------------------------------------------
# Each call is one transaction, which makes its changes in the given order, all or none.


@dataclass(frozen=True, slots=True)
class Inserts:
    facts: Sequence[Fact]
    path: str | None = ""  # of the array in the request, for error messages; None if the body is the fact itself
    ends_stay: bool = False  # reject facts that are already stored with another expiry
    is_late: bool = False  # delayed: a fact that has expired since is deleted, not rejected


@dataclass(frozen=True, slots=True)
class Deletes:
    patterns: Sequence[FactPattern]


Change = Inserts | Deletes


@dataclass(frozen=True, slots=True)
class Applied:
    offset: int
    deleted: int = 0


def apply(environment_id: int, changes: Iterable[Change], by: By = NOBODY) -> Applied:
    """Make the changes, all or none; return their offset and how many facts were deleted."""
    with changing():
        turn = advance(environment_id)
        program = program_of_version(turn.policy_version_id)
        work = Work(environment_id, turn)
        for change in changes:
            match change:
                case Inserts(facts, path, ends_stay, is_late):
                    check_facts(program, facts, path)
                    if is_late:
                        facts, ended = parted_by_end(facts)
                        work.delete([exact_pattern(fact) for fact in ended], turn.offset)
                    else:
                        check_ends(facts, path)
                    rows = rows_of_facts(environment_id, facts, turn.offset)
                    work.insert(rows, some_end(facts), ends_stay)
                case Deletes(patterns):
                    work.delete(patterns, turn.offset)
                    _check_deleted(work.deleted)
        work.settle(turn.offset)
        _record(environment_id, turn, Kind.FACTS, by, work.counts(turn.offset, turn.offset)[turn.offset])
        fact_table().note_stored(work.inserted)
    return Applied(turn.offset, work.deleted)


def clear(environment_id: int, by: By = NOBODY) -> Applied:
    """Delete every fact of the environment; keep its policy and its signatures' numbers."""
    with changing():
        turn = advance(environment_id)
        fact_table().lift_time_limit()
        numbers = signature_numbers(environment_id).values()
        deleted = sum(fact_table().end_all("sig = %s", (number,), turn.offset) for number in numbers)
        _record(environment_id, turn, Kind.CLEAR, by, ChangeCounts(deleted=deleted))
    return Applied(turn.offset, deleted)


def remove(environment_id: int) -> None:
    """Delete all facts of an environment that is about to be deleted, including past facts."""
    with changing():
        advance(environment_id)
        fact_table().lift_time_limit()
        with connection.cursor() as cursor:
            for number in signature_numbers(environment_id).values():
                cursor.execute("DELETE FROM fact WHERE sig = %s", (number,))
                cursor.execute("DELETE FROM past_fact WHERE sig = %s", (number,))


def copy_facts(origin_id: int, target_id: int, by: By = NOBODY) -> None:
    """Copy the facts of one environment to another, with their expiries."""
    with changing():
        turn = advance(target_id)
        names = ", ".join(COLUMNS)
        copied = 0
        numbers = {
            signature_number(target_id, each, turn.offset): number
            for each, number in signature_numbers(origin_id).items()
        }
        may_end = ending_numbers(origin_id)
        if may_end:
            let_end(target_id, [target for target, origin in numbers.items() if origin in may_end])
        with connection.cursor() as cursor:
            for target, origin in numbers.items():
                cursor.execute(
                    f"INSERT INTO fact (sig, {names}, since, expires_at) SELECT %s, {names}, %s, expires_at"
                    f" FROM fact WHERE sig = %s AND {lasting()} ON CONFLICT DO NOTHING",
                    (target, turn.offset, origin),
                )
                copied += cursor.rowcount
        _record(target_id, turn, Kind.COPY, by, ChangeCounts(copied))
        fact_table().note_stored(copied)


def _record(environment_id: int, turn: WriterTurn, kind: Kind, by: By, counts: ChangeCounts) -> None:
    done = Done(turn.offset, kind, by, turn.policy_version_id, counts.inserted, counts.deleted)
    record(environment_id, [done])


class Work:
    """Changes of facts in one transaction, in order, with the number of facts affected."""

    def __init__(self, environment_id: int, turn: WriterTurn):
        self.environment_id = environment_id
        self.ends = Ends(environment_id, turn)
        self.inserted = 0
        self.deleted = 0
        self.touched: set[int] = set()  # numbers of signatures

    @property
    def is_mixed(self) -> bool:
        """Return whether the same fact may have been both inserted and deleted."""
        return bool(self.inserted and (self.deleted or self.ends.changed))

    def insert(self, rows: Sequence[NewRow], some_end: bool = False, ends_stay: bool = False) -> None:
        """Insert facts, one per row; `some_end` is true if any of them has an expiry."""
        if rows:
            self.touched.update(row[0] for row in rows)
            self.ends.make_way(rows, some_end, ends_stay)
            self.inserted += fact_table().insert(rows)

    def delete(self, patterns: Sequence[FactPattern], until: int) -> None:
        """End the facts that the patterns match. Consecutive patterns without open arguments share a statement."""
        for exact, run in groupby(patterns, is_exact):
            if exact:
                self.delete_exactly([(pattern, until) for pattern in run])
            else:
                self._delete_matches(run, until)

    def delete_exactly(self, patterns: Iterable[tuple[FactPattern, int]]) -> None:
        """End the facts of patterns without open arguments, each at a revision; for a duplicate, at the first."""
        numbers = signature_numbers(self.environment_id)
        rows: dict[Row, int] = {}
        for pattern, until in patterns:
            number = numbers.get(Signature(pattern.predicate, tuple(arg.type or "" for arg in pattern.args)))
            if number is not None:
                ids = [arg.id or "" for arg in pattern.args]
                rows.setdefault((number, *(ids + [""] * (len(COLUMNS) - len(ids)))), until)
        if rows:
            self._ended({row[0] for row in rows}, fact_table().end([(*row, until) for row, until in rows.items()]))

    def _delete_matches(self, patterns: Iterable[FactPattern], until: int) -> None:
        fact_table().lift_time_limit()
        numbers = signature_numbers(self.environment_id)
        for pattern in patterns:
            conditions, ids = id_conditions(pattern.args)
            for number in matching(numbers, pattern.predicate, pattern.args).values():
                self._ended({number}, fact_table().end_all(f"sig = %s{conditions}", (number, *ids), until))

    def _ended(self, numbers: set[int], count: int) -> None:
        if count:
            self.touched |= numbers
            self.deleted += count

    def settle(self, revision: int) -> None:
        """After all changes of a revision, cancel out what it both began and ended."""
        if self.is_mixed:
            settle(self.touched, revision)

    def counts(self, first: int, last: int) -> dict[int, ChangeCounts]:
        """Return the net changes of each of these revisions."""
        if first == last and not self.is_mixed:
            return {first: ChangeCounts(self.inserted, self.deleted)}
        return changed(self.touched, first, last)


# ---- inserting ------------------------------------------------------------------------------------------


def rows_of_facts(environment_id: int, facts: Sequence[Fact], since: int) -> list[NewRow]:
    """Return the facts' rows without duplicates; assign numbers to new signatures."""
    return rows_of(facts, lambda signature: signature_number(environment_id, signature, since), since)


# ---- deleting -------------------------------------------------------------------------------------------


def is_exact(pattern: FactPattern) -> bool:
    """Return whether the pattern has all ids, and so matches at most one fact."""
    return all(arg.id is not None for arg in pattern.args)


def _check_deleted(deleted: int) -> None:
    limit = settings.MAX_DELETE_MATCHES
    if limit and deleted > limit:
        raise TooLarge(
            f"the deletes match more than {limit:,} facts (MAX_DELETE_MATCHES); use narrower patterns, "
            "or raise the limit"
        )


# ---- The elements of a batch: inserts and deletes, in order ---------------------------------------------------------


def changes_from_json(raw: object, path: str) -> list[Change]:
    """Return the elements of a batch, in order."""
    if not isinstance(raw, list):
        raise MalformedRequest(path, "the request body must be an array of changesets")
    return [_change_from_json(item, f"{path}[{index}]") for index, item in enumerate(raw)]


def _change_from_json(raw: object, path: str) -> Change:
    match raw:
        case {"inserts": _, "deletes": _}:
            raise MalformedRequest(path, 'must have "inserts" or "deletes", not both')
        case {"inserts": facts}:
            return Inserts(batch_from_json(facts, f"{path}.inserts"), f"{path}.inserts")
        case {"deletes": patterns}:
            return Deletes(patterns_from_json(patterns, f"{path}.deletes"))
    raise MalformedRequest(path, 'must be an object with "inserts" or "deletes"')
