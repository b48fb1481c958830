"""Review access as of a moment, or what was gained and lost between two."""

from collections.abc import Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from checks.asking.advice import unknown_words
from checks.asking.snapshot import Snapshot, snapshot
from checks.compare.kinds import AccessKind, access_kinds, exceptions, kinds_that_differ, missing, without_covered
from checks.engine.compile import AnswerRow
from checks.explain.cases import ANY
from facts.keyset_pages import changed_facts_between
from facts.numbering import Numbered, numbers_as_of
from policy.active import program_of_version
from policy.errors import AuthzError
from policy.moments import AsOf, Moment, MomentNotAvailable, moment_of, present
from policy.rules.program import Program
from policy.values import INTEGER, STRING, Value

# ---- Who had what as of a moment, or what was gained and lost between two moments ---------------------------------
# Each kind of access (a type of actors, an action, a type of resources) is queried for some resources at a time, as of
# each moment, by that moment's policy: "which actors may do this on these?" The kinds that exist, and those that can
# have changed, are derived from the policies and from the changed facts (`reached`): there may be too many of them,
# never too few. If only certain actors or resources can have changed, only those are queried.

_NO_INTEGER = str(2**62 + 1)  # stands for all integers that nothing mentions


class AccessState:
    HAS, GAINED, LOST = "has", "gained", "lost"
    KEPT = "kept"  # an exception to a preceding line about every value: the same at both moments


class Access(NamedTuple):
    """Who may do what; an id of ANY stands for every value that no other line of the same answer is about."""

    state: str
    actor: Value
    action: Value
    resource: Value


class NotAnswered(NamedTuple):
    """A kind of access that the engine rejected, for this many resources (0: for all)."""

    kind: AccessKind
    resources: int
    example: str
    reason: str

    def __str__(self) -> str:
        resources = "1 resource" if self.resources == 1 else f"{self.resources:,} resources"
        about = f" for {resources}, for example {self.example}" if self.resources else ""
        return f"{self.kind}{about}: {self.reason}"


class ReviewFilter(NamedTuple):
    """What a review is restricted to; empty strings match everything."""

    actor_type: str = ""
    action: str = ""
    resource_type: str = ""
    actor: str = ""  # the id of one actor of that type


EVERYTHING = ReviewFilter()


# ---- moments -------------------------------------------------------------------------------------------------------


def moments_reviewed(
    environment_id: int, *asked: AsOf | None, called: Sequence[str] = ("from", "to"), now: Moment | None = None
) -> tuple[Moment, ...]:
    """Return the moments of a review. None stands for `now`, or for the present if that is None too.

    `called` has the moments' names for error messages.
    """
    found = tuple([_moment(environment_id, each, name, now) for each, name in zip(asked, called)])
    orders = [(each.revision, each.at) for each in found]
    if orders != sorted(orders):
        raise MomentNotAvailable(f"the start (revision {orders[0][0]}) is after the end (revision {orders[1][0]})")
    return found


def _moment(environment_id: int, asked: AsOf | None, called: str, now: Moment | None) -> Moment:
    found = now if asked is None else moment_of(environment_id, asked, called=called)
    return found or present(environment_id)


# ---- the review ------------------------------------------------------------------------------------------------------


@dataclass
class Review:
    """Reviews one moment, or compares two."""

    environment_id: int
    moments: tuple[Moment, ...]
    wanted: ReviewFilter = EVERYTHING
    known: Numbered = field(init=False)
    programs: tuple[Program, ...] = field(init=False)

    def __post_init__(self):
        # Not those of now: with signatures of later facts, kinds might differ from those of an earlier page.
        self.known = numbers_as_of(self.environment_id, self.moments[-1].signatures)
        self.programs = tuple([_program(moment) for moment in self.moments])
        wanted = self.wanted
        terms = [(wanted.actor_type or None, wanted.actor or None), (STRING, wanted.action or None),
                 (wanted.resource_type or None, None)]  # fmt: skip
        unknown = [list(unknown_words(program, "allow", terms)) for program in self.programs]
        if all(unknown) and not self.kinds:
            raise AuthzError("; ".join(map(str, unknown[-1])))

    @cached_property
    def kinds(self) -> list[AccessKind]:
        """Return the kinds of access that may hold, or may differ, sorted."""
        if len(self.moments) == 1:
            found = access_kinds(self.programs[0], self.known.numbers)
        else:
            changes = changed_facts_between(self.known, *self.moments)
            clock = self.moments[0].at // 1_000_000 != self.moments[1].at // 1_000_000
            old, new = self.programs
            found = kinds_that_differ(old, new, changes, self.known.numbers, clock)
        return [each for kind in found if (each := kind.narrowed(*self.wanted)) is not None]

    @contextmanager
    def sides(self) -> Iterator[list[Snapshot]]:
        """Open a session as of each moment."""
        with ExitStack() as stack:
            yield [
                stack.enter_context(snapshot(self.environment_id, each.version, (), frozenset(), each))
                for each in self.moments
            ]


def _program(moment: Moment) -> Program:
    assert moment.version is not None, "a moment that is reviewed has a policy"
    return program_of_version(moment.version)


def compared(kind: AccessKind, sides: Sequence[Set[AnswerRow]]) -> list[tuple[str, AnswerRow]]:
    """Return (state, row) for who has access; with two sides, for what was lost and gained, with exceptions.

    A row is (actor, action, resource). Of two sides, no row covers another of the same side.
    """
    if len(sides) == 1:
        return [(AccessState.HAS, row) for row in sides[0] if kind.reports(row[1])]
    old, new = sides
    lost, gained = ([row for row in rows if kind.reports(row[1])] for rows in (missing(old, new), missing(new, old)))
    # Every action may be lost here, except one with a kind of its own that was kept.
    kept = without_covered(exceptions(gained, old) | exceptions(lost, new))
    shown = [row for row in kept if kind.reports(row[1]) or not _differs_for_all(row, old, new)]
    states = ((AccessState.LOST, lost), (AccessState.GAINED, gained), (AccessState.KEPT, shown))
    return [(state, row) for state, rows in states for row in rows]


def _differs_for_all(row: AnswerRow, old: Set[AnswerRow], new: Set[AnswerRow]) -> bool:
    """Return whether it changed for all actors, or on all resources; the action's own kind reports the rest."""
    actor, action, resource = row
    wider = [each for name in (action, None) for each in ((None, name, resource), (actor, name, None))]
    was, now = (any(each in rows for each in wider) for rows in (old, new))
    return was != now


def asked_id(type_name: str, text: str) -> str:
    return _NO_INTEGER if text == ANY and type_name == INTEGER else text
