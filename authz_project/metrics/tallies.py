"""Counts what observers are told, many requests at a time.

When a request is answered, it is only put on a list. The thread that writes metrics takes the list and counts. For each
request, that is some ten times as fast as updating a dozen of the client's metrics while the request is answered.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise
from operator import itemgetter
from threading import Lock
from typing import Any, NamedTuple

from authz_project.metrics.table import METRICS
from authz_project.observing import OTHER, AnsweredRequest
from policy.ground.spans import Noted, Part

TallyKey = tuple[Any, ...]  # a metric's name, and its labels
MOST = 20_000  # requests that wait to be counted; a thread that adds one more counts them all

_endpoint_method_status, _seconds, _noted = itemgetter(0, 1, 2), itemgetter(4), itemgetter(10)


class Times(NamedTuple):
    """The values of one histogram: how many are in each bucket, the last of which has no upper bound, and their sum."""

    buckets: Sequence[int]
    total: float


class Taken(NamedTuple):
    """What was counted since the last time."""

    counts: Mapping[TallyKey, float]
    times: Mapping[TallyKey, Times]


def times_of(values: list[float], bounds: Sequence[float]) -> Times:
    """Count the values in each bucket, its upper bound included; this sorts the list `values`.

    `times_of([0.2, 0.1, 5.0, 0.05], [0.1, 0.5])` has the buckets `[2, 1, 1]`.
    """
    values.sort()
    below = [0, *(bisect_right(values, bound) for bound in bounds), len(values)]
    return Times([more - less for less, more in pairwise(below)], sum(values))


class Tallies:
    """All that one process counts."""

    def __init__(self) -> None:
        self._changing = Lock()
        self._seen: list[AnsweredRequest] = []
        self._clear()

    def seen(self, seen: AnsweredRequest) -> None:
        """Take in a request that was answered."""
        waiting = self._seen
        waiting.append(seen)
        if len(waiting) > MOST:
            with self._changing:
                self._count_waiting()

    def noted(self, part: Part) -> None:
        """Take in a part that belongs to no request."""
        with self._changing:
            self._count_parts({part.name: [(part.name, part.began, part.seconds, part.facts)]})

    def count(self, *key: str, number: float = 1) -> None:
        with self._changing:
            self._counts[key] += number

    def take(self) -> Taken:
        """Return what was counted since the last time, and begin again at zero."""
        with self._changing:
            self._count_waiting()
            values = self._values.items()
            taken = Taken(self._counts, {key: times_of(each, METRICS[key[0]].buckets) for key, each in values})
            self._clear()
        return taken

    def _clear(self) -> None:
        self._counts: defaultdict[TallyKey, float] = defaultdict(float)
        self._values: defaultdict[TallyKey, list[float]] = defaultdict(list)

    def _count_waiting(self) -> None:
        """Count the requests on the list. What threads append meanwhile, without the lock, stays on it."""
        number = len(self._seen)
        batch = self._seen[:number]
        del self._seen[:number]
        for key, times in Counter(map(_endpoint_method_status, batch)).items():
            self._counts["requests", *key] += times
        by_endpoint: defaultdict[str, list[AnsweredRequest]] = defaultdict(list)
        for seen in batch:
            by_endpoint[seen[0]].append(seen)
        parts: defaultdict[str, list[Noted]] = defaultdict(list)
        for endpoint, those in by_endpoint.items():
            self._values["request_seconds", endpoint] += map(_seconds, those)
            for part in chain.from_iterable(map(_noted, those)):
                parts[part[0]].append(part)
            self._decisions(endpoint, parts.pop("decision", []))
        self._count_parts(parts)

    def _count_parts(self, parts: Mapping[str, list[Noted]]) -> None:
        for name, found in parts.items():
            count = _HOW.get(name)
            if count is not None:
                count(self, found)

    # ---- parts -------------------------------------------------------------------------------------------

    def _decisions(self, endpoint: str, found: list[Noted]) -> None:
        counts = self._counts
        for tally, times in _each_once(found):
            counts["questions",] += times
            if "allowed" in tally:
                counts["decisions", endpoint, "allowed"] += tally["allowed"] * times
                counts["decisions", endpoint, "denied"] += tally["denied"] * times
            elif "rows" in tally:
                counts["decisions", endpoint, "listed" if tally["rows"] else "empty"] += times
                counts["rows_answered", endpoint] += tally["rows"] * times
            else:
                counts["decisions", endpoint, "sql"] += times

    def _decided_elsewhere(self, found: list[Noted]) -> None:
        self._decisions(OTHER, found)

    def _waits(self, found: list[Noted]) -> None:
        by_what: defaultdict[str, list[float]] = defaultdict(list)
        for _, _, seconds, facts in found:
            by_what[facts["of"]].append(seconds)
        for what, values in by_what.items():
            self._values["wait_seconds", what] += values

    def _statements(self, found: list[Noted]) -> None:
        self._values["statement_seconds",] += [part[2] for part in found]
        self._counts["statements_failed",] += sum(times for facts, times in _each_once(found) if "failed" in facts)

    def _found(self, found: list[Noted]) -> None:
        self._counts["statements_found",] += len(found)

    def _kept(self, found: list[Noted]) -> None:
        self._counts["answers_kept",] += len(found)

    def _compiled(self, found: list[Noted]) -> None:
        self._counts["statements_compiled",] += len(found)
        self._values["compilation_seconds", "statement"] += [part[2] for part in found]

    def _policies(self, found: list[Noted]) -> None:
        self._values["compilation_seconds", "policy"] += [part[2] for part in found]
        self._outcomes("policy_compilations", found)

    def _loads(self, found: list[Noted]) -> None:
        self._outcomes("loads", found)

    def _outcomes(self, name: str, found: list[Noted]) -> None:
        for part in found:
            self._counts[name, "refused" if "failed" in part[3] else "done"] += 1

    def _changes(self, found: list[Noted]) -> None:
        self._values["batch_entries",] += [part[3]["entries"] for part in found]

    def _commits(self, found: list[Noted]) -> None:
        self._values["commit_changes",] += [part[3]["changes"] for part in found]

    def _revisions(self, found: list[Noted]) -> None:
        for part in found:
            self._counts["revisions", part[3]["kind"]] += 1
            self._counts["facts_inserted",] += part[3]["inserted"]
            self._counts["facts_deleted",] += part[3]["deleted"]

    def _lost(self, found: list[Noted]) -> None:
        self._counts["connections_lost",] += len(found)

    def _log_lines(self, found: list[Noted]) -> None:
        for part in found:
            for outcome, number in part[3].items():
                self._counts["decision_log_lines", outcome] += number


def _each_once(parts: list[Noted]) -> list[tuple[Mapping[str, Any], int]]:
    """Return the facts of the parts, each object once, with how many parts have it: most share a few constants."""
    said = [part[3] for part in parts]
    by_id = dict(zip(map(id, said), said, strict=True))
    return [(by_id[place], times) for place, times in Counter(map(id, said)).items()]


_HOW: dict[str, Callable[[Tallies, list[Noted]], None]] = {
    "decision": Tallies._decided_elsewhere,
    "wait": Tallies._waits,
    "statement": Tallies._statements,
    "found": Tallies._found,
    "kept": Tallies._kept,
    "compile": Tallies._compiled,
    "policy": Tallies._policies,
    "load": Tallies._loads,
    "change": Tallies._changes,
    "commit": Tallies._commits,
    "revision": Tallies._revisions,
    "lost": Tallies._lost,
    "log": Tallies._log_lines,
}
