"""Check a recorded history of a service that stores facts, changes policies and answers questions.

    python -m tests.faults.history_checker history.jsonl

The checker imports nothing of the service. It knows this of its interface: each committed change has a revision of its
own, a number that grows by one; an answer names the revision that it is of; and a client may send the oldest revision
that it accepts. Everything else is a model of a few lines: registers, which changes set, and answers about keys. A key
is granted if the register `<mode>/<key>` is true, for the value of the register `mode`. The mode stands for the policy.

A history is consistent if

* acknowledged changes have different revisions, in the order of time: a change that was acknowledged before another one
  was sent has the smaller revision;
* no answer is of a revision before the one that its request accepts, or before one that was acknowledged `staleness`
  seconds before the request was sent; nor of a revision with a change that was only sent after the answer;
* each answer is that of the model at its revision.

Changes without an acknowledgement may have happened or not. If they happened, they took one of the revisions that no
other change has. For each key the checker follows all states that are possible that way; an answer that none of them
gives is wrong. Which unacknowledged change took a revision is chosen for each key apart. That may hide an
inconsistency between two keys, but it never reports one that is not there.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path

MODE = "mode"
Value = str | bool | None
State = tuple[Value, ...]


@dataclass(frozen=True)
class Operation:
    """A change or a question. Times are seconds by one clock; `completed` is None if no answer came."""

    invoked: float
    completed: float | None = None
    revision: int = 0
    changes: Mapping[str, Value] = field(default_factory=dict)  # registers and their new values, all at once
    answers: Mapping[str, bool] = field(default_factory=dict)  # keys, and whether they are granted
    at_least: int = 0  # the oldest revision that the request accepts
    staleness: float = 0.0  # seconds

    @property
    def is_acknowledged(self) -> bool:
        return self.completed is not None


def problems(history: Sequence[Operation]) -> list[str]:
    """Return what is wrong with the history; nothing if it is consistent."""
    return [*_order_of_changes(history), *_times_of_answers(history), *_values_of_answers(history)]


# ---- revisions and time ------------------------------------------------------------------------------------------


class _Newest:
    """The largest revision among the operations that were completed before a time."""

    def __init__(self, operations: Iterable[Operation]):
        ordered = sorted((each.completed, each.revision) for each in operations if each.completed is not None)
        self._times = [time for time, _ in ordered]
        self._newest = [0, *accumulate((revision for _, revision in ordered), max)]

    def before(self, time: float) -> int:
        return self._newest[bisect_left(self._times, time)]


def _changes(history: Iterable[Operation]) -> list[Operation]:
    """Return the acknowledged changes by revision."""
    return sorted((each for each in history if each.changes and each.is_acknowledged), key=lambda each: each.revision)


def _order_of_changes(history: Sequence[Operation]) -> Iterator[str]:
    changes = _changes(history)
    for one, other in pairwise(changes):
        if one.revision == other.revision:
            yield f"revision {one.revision} was given to two changes: {_shown(one)} and {_shown(other)}"
    newest = _Newest(changes)
    for each in changes:
        if each.revision < (earlier := newest.before(each.invoked)):
            yield f"revision {earlier} was acknowledged before this change was sent: {_shown(each)}"


def _times_of_answers(history: Sequence[Operation]) -> Iterator[str]:
    changes = _changes(history)
    newest = _Newest(changes)
    revisions = [each.revision for each in changes]
    latest_sent = [float("-inf"), *accumulate((each.invoked for each in changes), max)]
    for each in history:
        if not each.answers or each.completed is None:
            continue
        if each.revision < each.at_least:
            yield f"an answer is older than revision {each.at_least}, which its request asked for: {_shown(each)}"
        if each.revision < (known := newest.before(each.invoked - each.staleness)):
            yield f"a stale answer: revision {known} was acknowledged {each.staleness:g} s before: {_shown(each)}"
        if latest_sent[bisect_left(revisions, each.revision + 1)] > each.completed:
            yield f"an answer is of a revision with a change that was sent later: {_shown(each)}"


# ---- values ------------------------------------------------------------------------------------------------------


def _values_of_answers(history: Sequence[Operation]) -> Iterator[str]:
    unknown = _Unknown(history)
    of_register: dict[str, list[Operation]] = defaultdict(list)
    for each in _changes(history):
        for name in each.changes:
            of_register[name].append(each)
    registers: dict[str, set[str]] = defaultdict(set)  # by key
    for each in history:
        for name in each.changes:
            registers[name.rpartition("/")[2]].add(name)
    answers: dict[str, list[Operation]] = defaultdict(list)
    for each in history:
        for key in each.answers if each.is_acknowledged else ():
            answers[key].append(each)
    for key, asked in answers.items():
        names = (MODE, *sorted(registers[key]))
        changes = {id(change): change for name in names for change in of_register[name]}
        wrong = _first_wrong(key, names, [*changes.values()], asked, unknown)
        if wrong is not None:
            yield f"no state of revision {wrong.revision} gives this answer about {key}: {_shown(wrong, key)}"


class _Unknown:
    """Changes without an acknowledgement, and the revisions that they may have taken."""

    def __init__(self, history: Sequence[Operation]):
        newest = _Newest(each for each in history if each.is_acknowledged)
        lost = [each for each in history if each.changes and not each.is_acknowledged]
        self._changes = [(newest.before(each.invoked), each) for each in lost]
        taken = {each.revision for each in _changes(history)}
        last = max((each.revision for each in history), default=0)
        self.revisions = [number for number in range(1, last + 1) if number not in taken]

    def possible_at(self, revision: int, names: Sequence[str]) -> list[Operation]:
        return [each for known, each in self._changes if known < revision and not each.changes.keys().isdisjoint(names)]


def _first_wrong(
    key: str, names: Sequence[str], changes: list[Operation], answers: list[Operation], unknown: _Unknown
) -> Operation | None:
    """Follow the states that the registers may have, revision by revision, to the first answer that none gives."""
    steps: list[tuple[int, int, Operation | None]] = [(each.revision, 0, each) for each in changes]
    steps += [(number, 0, None) for number in unknown.revisions]
    steps += [(each.revision, 1, each) for each in answers]
    states: set[State] = {(None, *[False] * (len(names) - 1))}
    for revision, is_answer, operation in sorted(steps, key=lambda step: step[:2]):
        if operation is None:
            maybe = unknown.possible_at(revision, names)
            states |= {_after(state, names, each) for state in states for each in maybe}
        elif is_answer:
            states = {state for state in states if _is_granted(state, names, key) == operation.answers[key]}
            if not states:
                return operation
        else:
            states = {_after(state, names, operation) for state in states}
    return None


def _after(state: State, names: Sequence[str], change: Operation) -> State:
    return tuple([change.changes.get(name, before) for name, before in zip(names, state)])


def _is_granted(state: State, names: Sequence[str], key: str) -> bool:
    return dict(zip(names, state)).get(f"{state[0]}/{key}", False) is True


# ---- files -------------------------------------------------------------------------------------------------------


def _shown(operation: Operation, key: str | None = None) -> str:
    found = {name: value for name, value in asdict(operation).items() if value}
    if key is not None:
        found["answers"] = {key: operation.answers[key]}
    return json.dumps(found)


def write(path: Path, history: Iterable[Operation]) -> None:
    path.write_text("".join(json.dumps(asdict(each)) + "\n" for each in history))


def main() -> int:
    history = [Operation(**json.loads(line)) for line in Path(sys.argv[1]).read_text().splitlines()]
    found = problems(history)
    print(*found, f"{len(history)} operations, {len(found)} problems", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
