"""Walk through an access review from a cursor, one small question at a time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from django.db import connection

from checks.asking import run
from checks.asking.question import FEW, Asked, Page, Question, allow
from checks.asking.snapshot import Snapshot
from checks.compare.kinds import MOST_ACTORS, AccessKind, without_covered
from checks.compare.review import Access, AccessState, NotAnswered, Review, asked_id, compared
from checks.engine.compile import AnswerRow
from checks.engine.rules.clauses import Slot
from checks.engine.sql.rounds import Fetched
from checks.engine.sql.text import finished
from checks.errors import QueryTooSlow, TooComplex, TooManyRows, UnboundVariable
from checks.explain.cases import ANY
from facts.keyset_pages import MentionedAsOf
from policy.core.pagination import Cursor, cursor_of
from policy.errors import AuthzError, Cancelled, MalformedRequest
from policy.moments import Moment, MomentNotAvailable, check_kept
from policy.values import BOOLEAN, INTEGER, STRING, Value

# ---- review cursor ------------------------------------------------------------------------------------------------
# A cursor stands after the lines that were shown, and the next page begins there.
#
# Kinds of access come in order. Within a kind one column leads (resources, or actors), and the other follows. What was
# "now" on the first page stays so on its continuation pages: URLs contain that revision and its time.

COUNTED = ("has", "gained", "lost")  # states of lines, in the order of their counts in a URL
RESOURCES, ACTORS, EACH = 0, 1, 2  # what leads; EACH: one actor at a time, resource by resource
WHOLE, OF_RESOURCES, OF_ACTORS = 0, 1, 2  # what a piece has of its kind: all, matching resources, or matching actors


class ReviewPiece(NamedTuple):
    """A kind of access, or what a filter leaves of it; `without` are resources that another piece covers."""

    kind: AccessKind
    phase: int = WHOLE
    without: frozenset[str] = frozenset()
    leads: int = RESOURCES

    @property
    def order(self) -> tuple[str, bool, str, str, int]:
        return self.cursor().order

    def cursor(self, leading: str | None = None, following: str | None = None, action: str = "") -> ReviewCursor:
        kind = self.kind
        return ReviewCursor(kind.resource, kind.action, kind.actor, self.phase, self.leads, leading, following, action)

    def place(self, actor: str, action: str, resource: str) -> tuple[str, str, str]:
        """Return the sort key of a line in the piece: the leading id, the following id, and the action."""
        return (actor, resource, action) if self.leads else (resource, actor, action)

    def row(self, leading: str, following: str | None) -> AnswerRow:
        """Return an answer to the piece's question about a leading id and a single action."""
        action = self.kind.action
        return (leading, action, following) if self.leads else (following, action, leading)


class ReviewCursor(NamedTuple):
    """What was shown last: all of a leading id (`following` is None), or up to a line; without `leading`, nothing."""

    resource_type: str
    action: str | None  # of the kind
    actor_type: str
    phase: int
    leads: int
    leading: str | None = None
    following: str | None = None
    named: str = ""  # the action of the line

    @property
    def order(self) -> tuple[str, bool, str, str, int]:
        return self.resource_type, self.action is None, self.action or "", self.actor_type, self.phase

    def is_of(self, kind: AccessKind) -> bool:
        return (self.resource_type, self.action, self.actor_type) == (kind.resource, kind.action, kind.actor)

    def is_before(self, leading: str, following: str, named: str) -> bool:
        """Return whether a line of the same piece comes after this cursor, and so is still to be shown."""
        if self.leading is None:
            return True
        if self.following is None:
            return leading > self.leading
        return (leading, following, named) > (self.leading, self.following, self.named)


class PageStart(NamedTuple):
    """Where a page begins, the number of lines of each state before it, and the last moment of its review.

    Tokens have only the moment's revision and time.
    """

    cursor: ReviewCursor
    shown: Mapping[str, int]
    last: Moment


def page_start_text(page_start: PageStart, of: str) -> str:
    """Return the start of a page as a token; `of` identifies the list."""
    cursor, shown, last = page_start
    return Cursor(of, [cursor, [shown.get(state, 0) for state in COUNTED]], then=(last.revision, last.at)).token


def page_start_from_text(text: str, of: str) -> PageStart | None:
    """Return the start of a page from its token; None for the first page, whose token is empty."""
    if not text:
        return None
    found = cursor_of(text)
    if found is None or found.of != of:
        raise MalformedRequest("after", "is not a valid cursor of this list; start again from the first page")
    cursor, numbers = found.key
    shown = Counter({state: number for state, number in zip(COUNTED, numbers) if number})
    revision, at = found.then
    return PageStart(ReviewCursor(*cursor), shown, Moment(revision, at, None))


# ---- stretches ----------------------------------------------------------------------------------------------------
# A stretch is a page of a review's lines from a cursor, with the start of the next page.
#
# A page asks small questions until its time is over, at least one of them. So going from page to page shows everything,
# however much there is. Each page reports how far it has looked.

PAGE = 100  # lines
WAIT = 1.0  # seconds of wall-clock time, after which a page asks nothing more
SECONDS = 0.1  # for a page to find its lines and then count those that follow; excludes planning
_WITHOUT_LINES = 2  # times SECONDS, while no line is found


class Chunk(NamedTuple):
    """Consecutive lines of a piece, the cursor after them, and what could not be answered."""

    piece: ReviewPiece
    lines: list[Access]
    end: ReviewCursor
    refused: tuple[NotAnswered, ...] = ()


@dataclass(frozen=True)
class ReviewLines:
    """A page of lines. `counts` are all lines found: on earlier pages, on this one, and beyond as far as it looked."""

    lines: tuple[Access, ...]
    counts: Mapping[str, int]
    before: Mapping[str, int]  # the same, only on earlier pages
    not_answered: tuple[NotAnswered, ...]
    is_first: bool
    is_whole: bool  # whether the review was read to its end
    looked: ReviewCursor | None  # how far it was read, if not
    next: PageStart | None
    moments: int
    has_unnamed: bool = False  # whether a line stands for all unmentioned resources, while others have their own

    @property
    def headline(self) -> str:
        """Return the number of lines, or at least how many there are if the review was not read to its end."""
        if not any(self.counts.values()):
            nothing = "No access" if self.moments == 1 else "No changes"
            return nothing if self.is_whole else "Nothing found so far"
        if self.is_whole or self.moments > 1:
            return f"{'' if self.is_whole else 'At least '}{counted(self.counts, self.moments)}"
        return f"At least {_results(self.counts)}"

    @property
    def range(self) -> str:
        """Return which lines are on the page, such as `101 to 200 of 250`; empty if these are all."""
        shown = sum(line.state != AccessState.KEPT for line in self.lines)  # kept ones are not numbered
        if not shown or (self.is_first and self.next is None):
            return ""
        start = _numbered(self.before) + 1
        of_all = f" of {_numbered(self.counts):,}" if self.is_whole else ""
        return f"{start:,} to {start + shown - 1:,}{of_all}"

    @property
    def is_short(self) -> bool:
        """Return whether the time was over before the page was full."""
        return not self.is_whole and len(self.lines) < PAGE


def _numbered(counts: Mapping[str, int]) -> int:
    return sum(count for state, count in counts.items() if state != AccessState.KEPT)


def _results(counts: Mapping[str, int]) -> str:
    found = counts.get(AccessState.HAS, 0)
    return f"{found:,} result{'s' if found != 1 else ''}"


def counted(counts: Mapping[str, int], moments: int) -> str:
    if moments == 1:
        return _results(counts)
    return f"{counts.get(AccessState.GAINED, 0):,} gained, {counts.get(AccessState.LOST, 0):,} lost"


def stretch_of(
    chunks: Iterable[Chunk],
    page_start: PageStart | None,
    last: Moment,
    wanted: Callable[[Access], bool],
    planning: Callable[[], float],
    moments: int,
) -> ReviewLines:
    """Read wanted lines from the chunks until the time is over; `planning` returns seconds that do not count."""
    clock = time.thread_time if connection.vendor == "sqlite" else time.monotonic  # SQLite runs in this thread
    began, opened = clock(), time.monotonic()
    before = Counter(page_start.shown if page_start else {})
    page: list[Access] = []
    found: Counter[str] = Counter()
    refused: list[NotAnswered] = []
    beyond: list[NotAnswered] = []  # of chunks read after the page was full
    here = last_shown = None
    is_whole, has_more, has_unnamed = True, False, False
    for chunk in chunks:
        for line in filter(wanted, chunk.lines):
            if len(page) < PAGE:
                page.append(line)
                last_shown = chunk.piece.cursor(*chunk.piece.place(*(each.id for each in line[1:])))
                has_unnamed |= line.resource.id == ANY and chunk.piece.leads != ACTORS
            else:
                has_more = True
            found[line.state] += 1
        (refused if len(page) < PAGE else beyond).extend(chunk.refused)
        here = chunk.end
        is_late = time.monotonic() - opened > max(WAIT, SECONDS)
        if clock() - began - planning() > SECONDS * (1 if page else _WITHOUT_LINES) or is_late:
            is_whole = False
            break
    following = None
    if has_more or (not is_whole and len(page) == PAGE):
        following = last_shown
    elif not is_whole:
        following = here
    if following is None:
        refused += beyond  # no further page will show them
    shown = before + Counter(line.state for line in page)
    return ReviewLines(
        tuple(page),
        before + found,
        before,
        tuple(refused),
        page_start is None,
        is_whole,
        None if is_whole else here,
        PageStart(following, shown, last) if following else None,
        moments,
        has_unnamed,
    )


class Filter(NamedTuple):
    """A text that a line's resource or actor (as `User:ann`) must contain; or its action, without `is_of_actors`.

    Without `is_of_actors` all lines are about one actor, whose id is not searched.
    """

    text: str
    is_of_actors: bool = True

    def has(self, line: Access) -> bool:
        other = named(line.actor.type, line.actor.id) if self.is_of_actors else line.action.id or "*"
        return self.text in named(line.resource.type, line.resource.id) or self.text in other

    def is_about_ids(self, type_name: str) -> bool:
        """Return whether values of the type can contain the text only in their ids."""
        return bool(self.text) and ":" not in self.text and self.text not in type_name and self.text != "*"


def named(type_name: str, text: str) -> str:
    """Return a value in the form that filters search."""
    return f"{type_name}:{'*' if text == ANY else text}"


# ---- chunks -------------------------------------------------------------------------------------------------------
# Walks through a review in chunks, from a cursor: each chunk is a small question, asked as of each moment.
#
# Usually resources lead, some at a time: who may do it on these? If only some actors can differ, actors lead: on what
# may these do it? If an answer is too large to read at once, the question is split down to a single id, whose answers
# are read in order.

MOST_REFUSED = 1_000  # rejected resources of a piece, after which no more are asked about
_FIRST = 8  # ids in the first question
_WHOLE = 5_000  # rows of one actor, of any action, read at once
_LOOKING_SECONDS = 1.0  # to look up all ids with the filter's text; if it takes longer, all lines are searched
_LAST = "\U0010ffff"  # sorts after every name and id


class WalkLimits(NamedTuple):
    """Limits on the size of a question, and on its time; None is the usual limit of a question."""

    ids: int
    rows: int  # read at once
    seconds: float | None = None  # for a question about several ids
    one_seconds: float | None = None  # for a question about one id


OF_PAGES = WalkLimits(250, 1_000, 0.2, 5.0)
OF_ALL_LINES = WalkLimits(500, 100_000)


def all_lines(review: Review, report: Callable[[ReviewCursor], None]) -> Iterator[Access | NotAnswered]:
    """Yield all lines of a review. Rejections of a kind are merged into one line, after the others of the kind."""
    chunks = Chunks(review, review.sides, Filter(""), limits=OF_ALL_LINES)
    for _, of_kind in groupby(chunks, key=lambda chunk: chunk.end[:3]):
        refused: list[NotAnswered] = []
        for chunk in of_kind:
            report(chunk.end)
            yield from chunk.lines
            refused += chunk.refused
        if refused:
            yield refused[0]._replace(resources=len(refused)) if refused[-1].resources else refused[-1]
    check_kept(review.environment_id, review.moments[0].revision)  # facts pruned meanwhile may have been missed


@dataclass
class Chunks:
    """All chunks after a cursor; `opened` opens sessions as of the review's moments.

    With `collapses`, what one actor may do on every resource is one line, not one for each resource in the facts.
    """

    review: Review
    opened: Callable[[], AbstractContextManager[Sequence[Snapshot]]]
    filter: Filter
    start: ReviewCursor | None = None
    collapses: bool = False
    limits: WalkLimits = field(default_factory=lambda: OF_PAGES)
    _with_text: dict[str, frozenset[str] | None] = field(default_factory=dict)
    _looked: float = 0.0  # seconds spent on looking up ids

    def __iter__(self) -> Iterator[Chunk]:
        is_first = True
        for piece in self._pieces():
            if not is_first:
                yield Chunk(piece, [], piece.cursor())
            is_first = False
            if any(each is not False for each in self._can_hold(piece.kind.question((ANY,)))):
                is_begun = self.start is not None and self.start.order == piece.order
                yield from self._of(piece, self.start if self.start and is_begun else piece.cursor())

    # ---- pieces ----------------------------------------------------------------------------------------------------

    def _pieces(self) -> Iterator[ReviewPiece]:
        """Yield the pieces from the start on."""
        for whole in sorted(map(ReviewPiece, self.review.kinds), key=lambda piece: piece.order):
            start = self.start
            if start is None or not start.is_of(whole.kind):
                if start is None or whole.order > start.order:
                    yield from self._pieces_of(whole.kind)
            elif start.phase == WHOLE:  # as it was started, even if ids with the text could be found now
                yield whole
            else:
                pieces = self._pieces_of(whole.kind, is_looked_for=True)
                # A kind that is no longer split into pieces starts over.
                yield from (each for each in pieces if each.phase == WHOLE or each.order >= start.order)

    def _pieces_of(self, kind: AccessKind, is_looked_for: bool = False) -> list[ReviewPiece]:
        """Return the pieces of a kind with the filter's text: resources that match, then actors that match.

        If the matching ids are unknown, return the whole kind as one piece.
        """
        resources = self._ids_with_text(kind.resource, is_looked_for) if self.filter.is_of_actors else None
        actors = None if resources is None else self._ids_with_text(kind.actor, is_looked_for)
        if resources is None or actors is None:
            return [ReviewPiece(kind)]
        found = []
        if mine := resources if kind.resources is None else resources & kind.resources:
            found.append(ReviewPiece(replace(kind, resources=mine), OF_RESOURCES))
        if theirs := actors if kind.actors is None else actors & kind.actors:
            found.append(ReviewPiece(replace(kind, actors=theirs), OF_ACTORS, resources))
        return found

    def _ids_with_text(self, type_name: str, is_looked_for: bool) -> frozenset[str] | None:
        """Return the ids of the type that contain the filter's text; None if unknown.

        They are unknown if there are too many, if the text may match something other than an id, or if looking them up
        takes too long. With `is_looked_for` there is no time limit: an earlier page has found them.
        """
        if not self.filter.is_about_ids(type_name) or type_name in (BOOLEAN, INTEGER, STRING):
            return None
        if type_name not in self._with_text:
            found = self._looked_up(type_name, is_looked_for)
            if found is not None:
                found |= {each for each in self._in_rules(type_name) if self.filter.text in each}
            self._with_text[type_name] = None if found is None or len(found) > MOST_ACTORS else frozenset(found)
        return self._with_text[type_name]

    def _looked_up(self, type_name: str, is_looked_for: bool) -> set[str] | None:
        """Return stored ids that contain the text; None if there is no time for that."""
        mentioned = self._mentioned(type_name)
        if is_looked_for:
            return set(mentioned.containing(MOST_ACTORS + 1, self._read))
        if self._looked >= _LOOKING_SECONDS:
            return None
        began = time.monotonic()
        try:
            with run.limited(_LOOKING_SECONDS - self._looked):
                return set(mentioned.containing(MOST_ACTORS + 1, self._read))
        except (QueryTooSlow, Cancelled):
            return None
        finally:
            self._looked += time.monotonic() - began

    def _read(self, sql: str) -> list[Fetched]:
        before, _, after = sql.partition("%s")
        statement = finished((before, Slot("text"), after), run.dialect())
        return run.execute(statement, {"text": self.filter.text})

    def _mentioned(self, type_name: str) -> MentionedAsOf:
        return MentionedAsOf(self.review.known.numbers, type_name, self.review.moments)

    def _in_rules(self, type_name: str) -> set[str]:
        return set().union(*(program.values.get(type_name, ()) for program in self.review.programs))

    def _of(self, piece: ReviewPiece, start: ReviewCursor) -> Iterator[Chunk]:
        kind = piece.kind
        can_lead = kind.actors is not None and kind.resources is None and self._has_lists(kind)
        if start.leading is None:
            leads = ACTORS if can_lead else RESOURCES
        elif start.leads == RESOURCES or can_lead:
            leads = start.leads  # as on the previous page
        else:
            leads, start = RESOURCES, piece.cursor()  # actors cannot lead any more: the piece starts over
        if leads == RESOURCES:
            yield from self._by_resources(piece, start)
        else:
            yield from self._by_actors(piece._replace(leads=ACTORS), start)

    def _has_lists(self, kind: AccessKind) -> bool:
        """Return whether the question what an actor may do can be asked without naming resources."""
        one = replace(kind, actors=frozenset(sorted(kind.actors or ())[:1])).question(None)
        return None not in self._can_hold(one)

    # ---- actors lead -------------------------------------------------------------------------------------------------

    def _by_actors(self, piece: ReviewPiece, start: ReviewCursor) -> Iterator[Chunk]:
        left = [each for each in sorted(piece.kind.actors or ()) if start.leading is None or each >= start.leading]
        if left and left[0] == start.leading:
            actor = left.pop(0)
            if start.following is not None and start.leads == EACH:
                yield from self._by_resources(_alone(piece, actor, EACH), start, actor)
            elif start.following is not None:
                yield from self._by_actor(piece, actor, start)
        alone: list[str] = []
        size = 1 if self.collapses else _FIRST
        while left:
            group = left[:size]
            chunk = self._of_actors(piece, group) if len(group) > 1 or self.limits is OF_ALL_LINES else None
            if chunk is None and len(group) > 1:
                size = max(1, size // 4)
                continue
            if chunk is not None:
                yield chunk
            elif self.limits is OF_ALL_LINES:
                alone += group
            else:
                yield from self._by_actor(piece, group[0], piece.cursor())
            del left[: len(group)]
            size = min(2 * size, FEW)
        if alone:  # all of these together, by resource
            piece = ReviewPiece(replace(piece.kind, actors=frozenset(alone)))
            yield from self._by_resources(piece, piece.cursor())

    def _of_actors(self, piece: ReviewPiece, actors: list[str]) -> Chunk | None:
        """Return what these actors may do; None if that is rejected, too large, or about every resource."""
        kind = replace(piece.kind, actors=frozenset(actors))
        try:
            found = self._rows(kind.question(None), self.limits.rows, self.limits.seconds)
        except MomentNotAvailable:
            raise
        except AuthzError:
            return None
        if _is_about_every(found):
            return None
        sides = [without_covered({each for row in rows for each in kind.rows(row, ())}) for rows in found]
        return _chunk(piece, compared(kind, sides), piece.cursor(), piece.cursor(actors[-1]))

    def _by_actor(self, piece: ReviewPiece, actor: str, start: ReviewCursor) -> Iterator[Chunk]:
        """Yield what one actor may do: read in order for one action, all at once for any, or resource by resource."""
        alone = _alone(piece, actor, ACTORS)
        kind, here = alone.kind, start
        try:
            if kind.action is not None:
                action = Asked(STRING, (kind.action,))
                asker, other = Asked(kind.actor, (actor,)), Asked(kind.resource, (asked_id(kind.resource, ANY),))
                every = self._every(allow(asker, action, other))
                if self.collapses or not any(every):
                    question = allow(asker, action, Asked(kind.resource, None), ("resource",))
                    for chunk in self._in_order(alone, question, every, actor, start):
                        here = chunk.end
                        yield chunk
                    return
            else:
                found = self._rows(kind.question(None), _WHOLE, self.limits.one_seconds)
                if self.collapses or not _is_about_every(found):
                    sides = [self._of_one(kind, actor, rows) for rows in found]
                    yield _chunk(alone, compared(kind, sides), start, piece.cursor(actor))
                    return
        except MomentNotAvailable:
            raise
        except AuthzError:
            pass  # asking resource by resource reports the error
        yield from self._by_resources(_alone(piece, actor, EACH), here, actor)

    def _of_one(self, kind: AccessKind, actor: str, rows: Sequence[AnswerRow]) -> set[AnswerRow]:
        """Return (actor, action, resource) for one actor; if lines collapse, None is every resource."""
        found = {each for row in rows for each in kind.rows(row, (ANY,))}
        if self.collapses:
            found = {(actor, action, resource or None) for _, action, resource in found}
        return without_covered(found)

    # ---- resources lead ----------------------------------------------------------------------------------------------

    def _by_resources(self, piece: ReviewPiece, start: ReviewCursor, actor: str | None = None) -> Iterator[Chunk]:
        """Yield who may do it on the resources, some of them at a time. If `actor` is given, that actor leads."""
        after = start.leading if actor is None else start.following
        is_begun = start.following is not None and (actor is None or start.named != _LAST)  # within a resource
        asked, size, refused = self._asked(piece), _FIRST, 0
        end_of_all = piece.cursor(_LAST) if actor is None else piece.cursor(actor)
        while ids := self._ids_after(piece.kind, after, is_begun, size):
            end = piece.cursor(ids[-1]) if actor is None else piece.cursor(actor, ids[-1], _LAST)
            try:
                sides = self._of_resources(asked, ids, self.limits.rows)
            except MomentNotAvailable:
                raise
            except AuthzError as refusal:
                if asked != piece.kind:
                    asked = piece.kind
                elif isinstance(refusal, TooComplex | UnboundVariable):
                    yield Chunk(piece, [], end_of_all, (NotAnswered(piece.kind, 0, "", refusal.message),))
                    return
                elif len(ids) > 1:
                    size = max(1, len(ids) // 4)
                else:
                    reason = yield from self._by_resource(piece, ids[0], start, end, actor, refusal)
                    after, is_begun, refused = ids[-1], False, refused + bool(reason)
                    if refused >= MOST_REFUSED:
                        reason += f"; stopped after {refused:,} resources could not be evaluated"
                        yield Chunk(piece, [], end_of_all, (NotAnswered(piece.kind, 0, "", reason),))
                        return
                continue
            yield _chunk(piece, compared(piece.kind, sides), start, end)
            after, is_begun = ids[-1], False
            if max(map(len, sides)) * 2 < self.limits.rows:
                size = min(2 * size, self.limits.ids)

    def _asked(self, piece: ReviewPiece) -> AccessKind:
        """Return the kind to ask about: if the resources are known, for all actors, which is faster than for some."""
        kind = piece.kind
        is_of_some = kind.resources is None or piece.phase == OF_ACTORS or self.review.wanted.actor
        return kind if is_of_some else replace(kind, actors=None)

    def _ids_after(self, kind: AccessKind, after: str | None, is_begun: bool, size: int) -> list[str]:
        """Return the next resources to ask about. Unless all are known, ANY comes first, and alone."""
        known = {"false", "true"} if kind.resource == BOOLEAN else kind.resources
        if known is not None:
            left = (each for each in known if after is None or each > after or (is_begun and each == after))
            return sorted(left)[:size]
        if after is None or (is_begun and after == ANY):
            return [ANY]
        named = {each for each in self._in_rules(kind.resource) if each > after}
        found = sorted({*named, *self._mentioned(kind.resource).after(after, size)})
        return [*([after] if is_begun else []), *found][:size]

    def _of_resources(self, kind: AccessKind, ids: Sequence[str], most: int) -> list[set[AnswerRow]]:
        """Return (actor, action, resource) as of each moment: None is every value, ANY one that nothing mentions."""
        question = kind.question(tuple([asked_id(kind.resource, text) for text in ids]))
        found = self._rows(question, most, self.limits.seconds if len(ids) > 1 else self.limits.one_seconds)
        return [without_covered({each for row in rows for each in kind.rows(row, tuple(ids))}) for rows in found]

    def _by_resource(
        self,
        piece: ReviewPiece,
        resource: str,
        start: ReviewCursor,
        end: ReviewCursor,
        actor: str | None,
        refusal: AuthzError,
    ) -> Generator[Chunk, None, str]:
        """Yield who may do it on one resource with too many answers: read in order, or all at once for any action.

        Any other `refusal`, and what cannot be read either, becomes a `NotAnswered`; return the reason, or an empty
        string.
        """
        kind = piece.kind
        try:
            if not isinstance(refusal, TooManyRows):
                raise refusal
            if kind.action is None or actor is not None:
                sides = self._of_resources(kind, (resource,), 0)
                yield _chunk(piece, compared(kind, sides), start, end)
                return ""
            ids = (asked_id(kind.resource, resource),)
            nobody = replace(kind, actors=frozenset((asked_id(kind.actor, ANY),)))
            yield from self._in_order(piece, kind.question(ids), self._every(nobody.question(ids)), resource, start)
            return ""
        except MomentNotAvailable:
            raise
        except AuthzError as reason:
            example = f"{kind.resource}:{resource or '*'}"
            yield Chunk(piece, [], end, (NotAnswered(kind, 1, example, reason.message),))
            return reason.message

    # ---- asking ------------------------------------------------------------------------------------------------------

    def _rows(self, question: Question, most: int, seconds: float | None) -> list[Sequence[AnswerRow]]:
        """Return the rows as of each moment, each within `seconds`; reject `most` or more (0: no limit)."""
        with self.opened() as sides:
            return [side.answers_within(question, most, seconds) for side in sides]

    def _can_hold(self, question: Question) -> list[bool | None]:
        """Return for each moment whether some facts could make it true; None if asking will raise the reason."""
        with self.opened() as sides:
            return [_can_hold(side, question) for side in sides]

    def _every(self, of_another: Question) -> list[bool]:
        """Return for each moment whether every value is an answer, judged by one that nothing mentions."""
        with self.opened() as sides:
            return [side.holds(of_another) for side in sides]

    def _text_for(self, piece: ReviewPiece, leading: str) -> str:
        """Return the text that ids of the following column must contain; empty if a line may contain it elsewhere."""
        kind, text = piece.kind, self.filter.text
        following, other = (kind.resource, kind.actor) if piece.leads else (kind.actor, kind.resource)
        if self.filter.is_of_actors:
            elsewhere = named(other, leading)
        elif piece.leads:
            elsewhere = kind.action or ""
        else:
            return ""  # the filter does not apply to the actors that follow
        return text if self.filter.is_about_ids(following) and text not in elsewhere else ""

    def _in_order(
        self, piece: ReviewPiece, question: Question, every: list[bool], leading: str, start: ReviewCursor
    ) -> Iterator[Chunk]:
        """Yield the answers of a question with one column, sorted, in parts, however many there are."""
        text, most = self._text_for(piece, leading), self.limits.rows
        after = start.following if start.leading == leading else None
        while True:
            with self.opened() as sides:  # even if every value is one, so that "every value but some" is rejected
                pages = [self._page(side, question, Page(most, after or "", None, text)) for side in sides]
            last = min((ids[-1] for ids in pages if len(ids) >= most), default=None)
            found = [
                {piece.row(leading, None)}
                if is_every
                else {piece.row(leading, each) for each in ids if last is None or each <= last}
                for is_every, ids in zip(every, pages)
            ]
            changes = compared(piece.kind, found)
            if after is not None:  # the line about every value was the first
                changes = [each for each in changes if each[1] != piece.row(leading, None)]
            end = piece.cursor(leading) if last is None else piece.cursor(leading, last, _LAST)
            yield _chunk(piece, changes, start, end)
            if last is None:
                return
            after = last

    def _page(self, side: Snapshot, question: Question, page: Page) -> list[str]:
        with run.limited(self.limits.one_seconds):
            return [str(text) for (text,) in side.page(question, page)]


def _can_hold(side: Snapshot, question: Question) -> bool | None:
    """Return whether some facts could make it true; None if that is rejected: asking will raise the reason."""
    try:
        return side.can_hold(question)
    except AuthzError:
        return None


def _is_about_every(sides: Iterable[Sequence[AnswerRow]]) -> bool:
    """Return whether a row is about every resource, which is the last column."""
    return any(row[-1] is None for rows in sides for row in rows)


def _alone(piece: ReviewPiece, actor: str, leads: int) -> ReviewPiece:
    return piece._replace(kind=replace(piece.kind, actors=frozenset((actor,))), leads=leads)


def _chunk(
    piece: ReviewPiece, changes: Iterable[tuple[str, AnswerRow]], start: ReviewCursor, end: ReviewCursor
) -> Chunk:
    """Return a chunk of the lines after `start`, sorted, without resources that another piece covers."""
    kind = piece.kind
    found = []
    for state, row in changes:
        actor, action, resource = (each or ANY for each in row)
        place = piece.place(actor, action, resource)
        if start.is_before(*place) and resource not in piece.without:
            values = Value(kind.actor, actor), Value(STRING, action), Value(kind.resource, resource)
            found.append((place, Access(state, *values)))
    return Chunk(piece, [line for _, line in sorted(found, key=itemgetter(0))], end)
