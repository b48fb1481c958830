"""Change the stored facts. Each call is one transaction: all of its changes, in the given order, or none.

`facts/together.py` has the transactions that writers share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AnySet
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from typing import NamedTuple

from facts import numbering, table
from facts.accept import check_ends, check_facts, parted_by_end
from facts.models import COLUMNS, PAST, ROW_LENGTH, STORED, GoneRow, NewRow, Row
from facts.numbering import known_numbers, numbers_that_may_end, signature_number, signature_numbers
from facts.read import id_conditions, matching
from facts.table import ChangeCounts, fact_table, fetch
from facts.wire import Fact, FactPattern, batch_from_json, exact_pattern, patterns_from_json, rows_of, some_end
from policy.active import active_program, program_of_version
from policy.core.config import settings
from policy.core.journal import NOBODY, By, Done, Kind, WriterTurn, advance, changing, record
from policy.errors import AuthzError, MalformedRequest, TooLarge
from policy.rules.program import Program, Signature

# ---- changes ------------------------------------------------------------------------------------------------------


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
            deletes = Deletes(patterns_from_json(patterns, f"{path}.deletes"))
            patterns.clear()  # the parsed JSON takes more memory than they do, and is not needed any more
            return deletes
    raise MalformedRequest(path, 'must be an object with "inserts" or "deletes"')


def is_exact(pattern: FactPattern) -> bool:
    """Return whether the pattern has all ids, and so matches at most one fact."""
    return all(arg.id is not None for arg in pattern.args)


def accepted_changes(program: Program | None, changes: Iterable[Change]) -> list[Change]:
    """Return the changes to make, in order. Reject facts that the policy cannot use, and expiries in the past."""
    accepted: list[Change] = []
    for change in changes:
        if isinstance(change, Inserts):
            check_facts(program, change.facts, change.path, is_strict=True)
            if change.is_late and some_end(change.facts):
                facts, ended = parted_by_end(change.facts)
                accepted += [Deletes([exact_pattern(fact) for fact in ended])] if ended else []
                change = replace(change, facts=facts)
            else:
                check_ends(change.facts, change.path)
        accepted.append(change)
    return accepted


# ---- expiries -----------------------------------------------------------------------------------------------------
# A signature is marked with its first fact that has an expiry; statements on unmarked signatures can ignore expiries. A
# fact has at most one expiry. If it is stored again with a different one, or with none, the old row becomes a past
# fact.


class EndsStay(AuthzError):
    """Facts were to be stored again with other expiries, by someone who may add facts but not end any."""

    def __init__(self, rows: AnySet[Row]):
        self.rows = rows
        super().__init__("this fact is already stored with another expiry, and you do not have permission to change it")


class Ends:
    """The expiries that one transaction stores and changes."""

    def __init__(self, environment_id: int, turn: WriterTurn):
        self.environment_id = environment_id
        self.may_end = numbers_that_may_end(environment_id, turn.ends_mark)
        self.revision = turn.offset
        self.changed = 0  # facts that were stored with another expiry

    def make_way(self, rows: Sequence[NewRow], some_end: bool, ends_stay: bool = False) -> None:
        """End the stored facts that are about to be stored with another expiry. Each fact is in at most one row.

        With `ends_stay`, refuse to: giving a fact an expiry in the near future amounts to deleting it.
        """
        if some_end:
            self._mark({row[0] for row in rows if row[-1] is not None})
        said = [row for row in rows if row[0] in self.may_end] if self.may_end else []
        if said:
            changed = fact_table().end_others(said)
            self.changed += changed
            if changed and ends_stay:
                self._check_stayed(said)

    def _check_stayed(self, rows: Sequence[NewRow]) -> None:
        """Raise `EndsStay` if `make_way` ended one of these facts, unless the fact had already expired."""
        numbers = sorted({row[0] for row in rows})
        tests = (table.of_signatures(numbers), "until = %s", "since < until", table.lasting())
        gone = table.select(table.KEY, *tests, table=PAST)
        lost = {tuple(row) for row in fetch(gone, (self.revision,))} & {row[:ROW_LENGTH] for row in rows}
        if lost:
            raise EndsStay(lost)

    def _mark(self, numbers: set[int]) -> None:
        new = numbers - self.may_end
        if new:
            numbering.let_end(self.environment_id, new)
            self.may_end |= new


# ---- Making changes: the work of one transaction --------------------------------------------------------------------


class RevisionChanges(NamedTuple):
    """The changes that one revision makes, and their author."""

    number: int
    by: By
    changes: Sequence[Change]

    @property
    def is_mixed(self) -> bool:
        """Return whether it both inserts and deletes, possibly the same facts."""
        return len(set(map(type, self.changes))) > 1

    def done(self, turn: WriterTurn, counts: ChangeCounts, kind: Kind = Kind.FACTS) -> Done:
        return Done(self.number, kind, self.by, turn.policy_version_id, counts.inserted, counts.deleted)


def make(environment_id: int, turn: WriterTurn, revisions: Sequence[RevisionChanges], most_deleted: int = 0) -> Work:
    """Make the changes in order, and record the revisions, whose numbers are consecutive.

    Neighbors that only insert or only delete share statements. A revision that does both has statements of its own.
    """
    work = Work(environment_id, turn, most_deleted)
    for is_mixed, run in groupby(revisions, lambda each: each.is_mixed):
        for some in [[each] for each in run] if is_mixed else [list(run)]:
            work.make([(each.number, change) for each in some for change in each.changes])
            if is_mixed:
                work.settle(some[0].number)
    counts = work.counts(revisions[0].number, revisions[-1].number)
    record(environment_id, [each.done(turn, counts[each.number]) for each in revisions])
    return work


class Work:
    """Changes of facts in one transaction, in order, with the number of facts affected."""

    def __init__(self, environment_id: int, turn: WriterTurn, most_deleted: int = 0):
        self.environment_id = environment_id
        self.ends = Ends(environment_id, turn)
        self.most_deleted = most_deleted  # 0: any number
        self.inserted = 0
        self.deleted = 0
        self.touched: set[int] = set()  # numbers of signatures

    @property
    def is_mixed(self) -> bool:
        """Return whether the same fact may have been both inserted and deleted."""
        return bool(self.inserted and (self.deleted or self.ends.changed))

    def make(self, changes: Iterable[tuple[int, Change]]) -> None:
        """Make the changes, each with its revision: insert, insert, delete -> one insert, one delete."""
        for _, run in groupby(changes, lambda each: type(each[1])):
            inserts, patterns = parted(run)
            self._insert(inserts)
            self._delete(patterns)

    def _insert(self, inserts: Sequence[tuple[int, Inserts]]) -> None:
        rows = rows_to_insert(inserts, self._number)
        if rows:
            self.touched.update(row[0] for row in rows)
            has_end = any(some_end(each.facts) for _, each in inserts)
            self.ends.make_way(rows, has_end, any(each.ends_stay for _, each in inserts))
            self.inserted += fact_table().insert(rows)

    def _number(self, revision: int, signature: Signature) -> int:
        known = known_numbers.get((self.environment_id, signature))
        return known or signature_number(self.environment_id, signature, revision)

    def _delete(self, patterns: Iterable[tuple[int, FactPattern]]) -> None:
        """End the facts that the patterns match. Neighbors without open arguments share a statement."""
        for exact, run in groupby(patterns, lambda each: is_exact(each[1])):
            if exact:
                some = list(run)
                try:
                    rows = rows_to_end(some, lambda each: known_numbers[self.environment_id, each])
                except KeyError:
                    rows = rows_to_end(some, signature_numbers(self.environment_id).get)
                if rows:
                    self._ended({row[0] for row in rows}, fact_table().end(rows))
            else:
                self._delete_matches(run)

    def _delete_matches(self, patterns: Iterable[tuple[int, FactPattern]]) -> None:
        fact_table().lift_time_limit()
        numbers = signature_numbers(self.environment_id)
        for until, pattern in patterns:
            conditions, ids = id_conditions(pattern.args)
            for number in matching(numbers, pattern.predicate, pattern.args).values():
                self._ended({number}, fact_table().end_all(f"sig = %s{conditions}", (number, *ids), until))

    def _ended(self, numbers: set[int], count: int) -> None:
        if count:
            self.touched |= numbers
            self.deleted += count
        if self.most_deleted and self.deleted > self.most_deleted:
            raise TooLarge(
                f"the deletes match more than {self.most_deleted:,} facts (MAX_DELETE_MATCHES); use narrower patterns, "
                "or raise the limit"
            )

    def settle(self, revision: int) -> None:
        """After all changes of a revision, cancel out what it both began and ended."""
        if self.is_mixed:
            table.settle(self.touched, revision)

    def counts(self, first: int, last: int) -> dict[int, ChangeCounts]:
        """Return the net changes of each of these revisions."""
        if first == last and not self.is_mixed:
            return {first: ChangeCounts(self.inserted, self.deleted)}
        return table.changed(self.touched, first, last)


def rows_to_insert(inserts: Sequence[tuple[int, Inserts]], number_of: Callable[[int, Signature], int]) -> list[NewRow]:
    """Return the rows of all inserted facts. Of equal facts, the first revision counts, and the last expiry."""
    some = [rows_of(each.facts, partial(number_of, revision), revision) for revision, each in inserts]
    if len(some) == 1:
        return some[0]
    rows: dict[NewRow, NewRow] = {}
    for row in chain.from_iterable(some):
        first = rows.setdefault(row[:ROW_LENGTH], row)
        if first[-1] != row[-1]:
            rows[row[:ROW_LENGTH]] = (*first[:-1], row[-1])
    return list(rows.values())


def parted(changes: Iterable[tuple[int, Change]]) -> tuple[list[tuple[int, Inserts]], list[tuple[int, FactPattern]]]:
    """Return the inserts, and the patterns of the deletes, each with its revision."""
    inserts: list[tuple[int, Inserts]] = []
    patterns: list[tuple[int, FactPattern]] = []
    for revision, change in changes:
        if isinstance(change, Inserts):
            inserts.append((revision, change))
        else:
            patterns += [(revision, pattern) for pattern in change.patterns]
    return inserts, patterns


def rows_to_end(
    patterns: Iterable[tuple[int, FactPattern]], number_of: Callable[[Signature], int | None]
) -> list[GoneRow]:
    """Return the rows of patterns without open arguments, each ended at a revision; of equal ones, the first counts."""
    rows: dict[Row, int] = {}
    for until, pattern in patterns:
        number = number_of(Signature(pattern.predicate, tuple([arg.type or "" for arg in pattern.args])))
        if number is not None:
            ids = [arg.id or "" for arg in pattern.args]
            rows.setdefault((number, *(ids + [""] * (len(COLUMNS) - len(ids)))), until)
    return [(*row, until) for row, until in rows.items()]


# ---- One transaction for one change ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Applied:
    offset: int
    deleted: int = 0
    version_id: int | None = None  # the policy version that accepted the facts


def apply(environment_id: int, changes: Iterable[Change], by: By = NOBODY) -> Applied:
    """Make the changes, all or none; return their offset and how many facts were deleted.

    An iterator of changes begins once no one else can change facts of the environment.
    """
    with changing():
        turn = advance(environment_id)
        changes = list(changes)  # now: some depend on the facts that are stored as of this turn
        limit = settings.MAX_DELETE_MATCHES if any(isinstance(change, Deletes) for change in changes) else 0
        accepted = accepted_changes(program_of_version(turn.policy_version_id), changes)
        work = make(environment_id, turn, [RevisionChanges(turn.offset, by, accepted)], limit)
        table.note_stored(work.inserted)
    return Applied(turn.offset, work.deleted, turn.policy_version_id)


KEYS_KEPT = 10_000  # of batches that may be sent again, in an environment


def check(environment_id: int, changes: Iterable[Change]) -> None:
    """Raise what `apply` would raise about these changes, by the active policy."""
    accepted_changes(active_program(environment_id), changes)


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
        for number in signature_numbers(environment_id).values():
            for name in (STORED, PAST):
                table.execute(table.delete("sig = %s", table=name), (number,))


def copy_facts(origin_id: int, target_id: int) -> None:
    """Copy the facts of one environment to another, with their expiries."""
    with changing():
        turn = advance(target_id)
        fact_table().lift_time_limit()
        known = numbering.numbers_as_of(origin_id)
        targets = {each: signature_number(target_id, each, turn.offset) for each in known.numbers}
        if known.ending:
            numbering.let_end(target_id, [targets[each] for each in known.ending])
        copied = sum(table.copy_signature(known.numbers[each], targets[each], turn.offset) for each in targets)
        _record(target_id, turn, Kind.COPY, NOBODY, ChangeCounts(copied))
        table.note_stored(copied)


def _record(environment_id: int, turn: WriterTurn, kind: Kind, by: By, counts: ChangeCounts) -> None:
    record(environment_id, [RevisionChanges(turn.offset, by, ()).done(turn, counts, kind)])
