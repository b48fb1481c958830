"""Preview the impact of a policy: its tests, unused facts, and changed decisions."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import orjson
from django.utils.module_loading import import_string

from checks.ask_pages.links import page_lines
from checks.asking import run
from checks.asking.advice import advice
from checks.asking.limits import Deadline
from checks.asking.question import check_predicate
from checks.asking.snapshot import Snapshot, snapshot, trial
from checks.compare.differences import AskedTogether, Compared, PolicyComparison, Sampler, differing
from checks.compare.kinds import kinds_of
from checks.decisions.log import BadLogLine, LogLine, line_of_text
from checks.explain.cases import Goal
from checks.explain.explain import ExplainedGoal, explain_goal
from checks.explain.tree import shown_atom
from facts.accept import UnusedStored, unused_signatures
from facts.numbering import signature_numbers
from facts.wire import fact_from_text
from policy import publishing
from policy.active import program_of_version
from policy.errors import AuthzError, MalformedRequest
from policy.language.source import NOWHERE
from policy.models import PolicyVersion
from policy.pages.highlight import excerpts_of_failures
from policy.publishing import CheckedDraft, results_of
from policy.rules.changes import Changed, changed_facts, changed_rules, reached
from policy.rules.program import Program, Rule
from policy.values import STRING

# ---- preview ------------------------------------------------------------------------------------------------------
# The impact of an unpublished policy: its tests, the facts it doesn't use, and decisions.
#
# Answers are compared for given questions, or for those that the difference between the policies reaches: what changed
# rules are about, and all that depends on it. Both policies get the same questions over the same facts, as of one
# moment.

SECONDS = 5.0  # for questions, by default; as many again for explanations
MOST_SHOWN = 100  # differing answers, of each kind of question and in each direction; the others are counted
MAX_EXPLAINED = 50  # differing answers to explain; the others are listed only
_SHORTEST = 0.05  # minimum time limit of a question, in seconds
_READER = "checks.decisions.replay.given_for"  # imported for decision logs alone: it needs all that decodes requests
_END_OF_LINE = re.compile(r"\r\n|\n|\r")  # no other line endings: JSON may contain Unicode's unescaped


# A given question as the active and the new policy ask it: a policy determines which properties of AuthZEN are facts.
GivenQuestion = tuple[AskedTogether, AskedTogether]


@dataclass(frozen=True, slots=True)
class Flip:
    """A changed answer, to one of the given questions if there are any. Only some flips are explained."""

    goal: Goal
    is_allowed: bool  # by the new policy
    given: GivenQuestion | None = None
    sides: tuple[ExplainedGoal, ...] = ()  # the explanations by the old and the new policy

    @property
    def text(self) -> str:
        return shown_atom(self.goal.predicate, self.goal.args)


@dataclass(frozen=True, slots=True)
class Preview:
    """The impact; `flips` are the changed answers, or only some of them if there are many.

    `given` is the number of given questions, of which `answered_otherwise` have another answer, or None if the `kinds`
    were examined; if `are_all` is false, the difference reaches more kinds than these. `refused` lists what was not
    compared, and why.
    """

    draft: CheckedDraft
    unused: tuple[UnusedStored, ...]
    rules: tuple[int, int]  # how many rules only the active policy has, and how many only the new one
    flips: Sequence[Flip]
    refused: Sequence[str] = ()
    given: int | None = None
    answered_otherwise: int = 0
    kinds: Sequence[Compared] = ()
    are_all: bool = True
    seed: int = 0

    @property
    def decisions(self) -> str:
        """Return in words how many decisions change, and of which ones."""
        if self.given is not None:
            refused = f"; {len(self.refused)} not answered" if self.refused else ""
            given = f"{self.given:,} check{'' if self.given == 1 else 's'}"
            return f"{self.answered_otherwise:,} of {given} would change{refused}"
        why = "no decision depends on the changed rules" if any(self.rules) else "no rules changed"
        return self._of_kinds(True) or f"0 would change: {why}"

    @property
    def others(self) -> str:
        """Return the same for what decisions depend on: roles, relations, and other predicates."""
        return "" if self.given is not None else self._of_kinds(False)

    def _of_kinds(self, are_decisions: bool) -> str:
        kinds = [each for each in self.kinds if each.kind.is_decision == are_decisions]
        if not kinds:
            return ""
        flips, answers = sum(each.tally.flips for each in kinds), sum(each.tally.answers for each in kinds)
        text = f"{flips:,} of {answers:,} would change"
        if not self.are_all:
            text += f" in the first {len(kinds):,} affected queries (there are more)"
        if self.are_all and all(each.is_all for each in kinds):
            return f"{text} (all affected results were compared)"
        text += f" (of a sample with seed {self.seed})"
        return f"{text}; the new policy cannot answer some queries" if any(each.is_refused for each in kinds) else text

    @property
    def differs(self) -> str:
        gone, new = self.rules
        if not any(self.rules):
            return "no rules changed"
        return f"{gone:,} removed, {new:,} added"

    @property
    def refuses(self) -> bool:
        """Return whether there are questions that only the active policy answers."""
        return any(each.is_refused for each in self.kinds)

    @property
    def differ(self) -> int:
        """Return the number of changed answers among those compared."""
        return len(self.flips) if self.given is not None else sum(each.tally.flips for each in self.kinds)


def preview(
    environment_id: int,
    text: str,
    filename: str,
    questions: str | None = None,
    *,
    seconds: float = SECONDS,
    seed: int = 0,
    most: int = MOST_SHOWN,
    explains: bool = True,
) -> Preview:
    """Compare the active policy with the text; raise `PolicyRejected` if it is invalid. Nothing is stored.

    `questions` is a text, as `questions_of_text` reads it; by default, ask what the difference reaches.
    """
    drafted = publishing.draft(text, filename, force=True)
    with ExitStack() as stack:
        for context in (Deadline(3 * seconds + _SHORTEST), run.question_time(), run.snapshot()):  # all of one moment
            stack.enter_context(context)
        unused = tuple(unused_signatures(environment_id, drafted.program))
        active = publishing.active_version(environment_id)
        programs = (program_of_version(active.pk) if active else None, drafted.program)
        given, refused = questions_of_text(questions, environment_id, programs) if questions is not None else ([], [])
        sides = stack.enter_context(_sides(environment_id, active, drafted.program, given))
        changed = changes_between(*sides)
        gone, added = (_count(each.rule for each in changed if each.is_new == is_new) for is_new in (False, True))
        found = Preview(drafted, unused, (gone, added), (), refused, seed=seed)
        until = time.monotonic() + seconds
        if questions is None:
            found = _compare_reached(found, sides, changed, until, most)
        else:
            found = _compare_given(found, sides, given, until, most)
        if explains:
            found = replace(found, flips=_with_some_explained(sides, found.flips, time.monotonic() + seconds))
    return found


def _count(rules: Iterable[Rule | None]) -> int:
    """Return how many rules of a policy's text these come from."""
    return len({rule.origin for rule in rules if rule is not None} - {NOWHERE})


def questions_of_text(
    text: str, environment_id: int, programs: tuple[Program | None, Program]
) -> tuple[list[GivenQuestion], list[str]]:
    """Return the distinct questions of a text for both programs, and why others are not asked.

    A line is a question such as `allow(User:ann, "read", Repo:acme)`, or a line of the decision log. Empty lines and
    those that begin with # are skipped. Log lines that cannot be asked, and questions with a word that neither policy
    has, are returned with the reason; a malformed question raises an error.
    """
    found: dict[object, GivenQuestion] = {}
    refused = []
    for number, line in enumerate(_END_OF_LINE.split(text), 1):
        written = line.strip()
        if written.startswith("{"):
            try:
                key, given = _given_of_line(written, number, environment_id, programs)
                found.setdefault(key, given)
            except AuthzError as reason:
                refused.append(reason.message if isinstance(reason, BadLogLine) else f"line {number}: {reason.message}")
        elif written and not written.startswith("#"):
            try:
                fact = fact_from_text(written)
            except AuthzError as reason:
                raise MalformedRequest(f"questions, line {number}", reason.message) from None
            goal = Goal(fact.predicate, fact.args)
            if unknown := _unknown_to_all(goal, [each for each in programs if each]):
                refused.append(f"line {number}: {unknown}")
            else:
                found.setdefault(goal, (AskedTogether.of_goal(goal),) * 2)
    return [*found.values()], refused


def _unknown_to_all(goal: Goal, programs: Sequence[Program]) -> str:
    """Return why no policy can allow a goal, which is probably misspelled; empty if one has all of its words."""
    found = ""
    for program in programs:
        try:
            check_predicate(program, goal.predicate)
        except AuthzError as reason:
            found = reason.message
            continue
        found = "; ".join(advice(program, goal.predicate, [(arg.type, arg.id) for arg in goal.args]))
        if not found:
            return ""
    return found


def _given_of_line(
    text: str, number: int, environment_id: int, programs: tuple[Program | None, Program]
) -> tuple[object, GivenQuestion]:
    line = line_of_text(text, number)
    if isinstance(line, BadLogLine):
        raise line
    if line.environment != environment_id:
        raise BadLogLine(number, f"it belongs to environment {line.environment}")
    if line.is_event:
        raise BadLogLine(number, "it is an event of an agent")
    if line.context_facts_left_out:
        raise BadLogLine(number, "the log entry has no context facts")
    read: Callable[[LogLine, Program | None], AskedTogether] = import_string(_READER)
    before, after = (read(line, each) for each in programs)
    try:
        return (line.endpoint, orjson.dumps(line.question, option=orjson.OPT_SORT_KEYS)), (before, after)
    except orjson.JSONEncodeError:
        raise BadLogLine(number, "its request is nested too deeply") from None


Sides = tuple[Snapshot, Snapshot]  # of the active policy, and of the new one


@contextmanager
def _sides(
    environment_id: int, active: PolicyVersion | None, program: Program, given: Iterable[GivenQuestion]
) -> Iterator[Sides]:
    asked = set().union(*(each.types for pair in given for each in pair))
    stored = {name for signature in signature_numbers(environment_id) for name in signature.types}
    types = frozenset() if active else frozenset(asked | stored | set(filter(program.knows, program.subtypes)))
    with (
        snapshot(environment_id, active.pk if active else None, (), types) as before,
        trial(environment_id, program, ()) as after,
    ):
        yield before, replace(after, now=before.now)


def changes_between(before: Snapshot, after: Snapshot) -> list[Changed]:
    programs = (before.program, after.program)
    return [*changed_rules(*programs), *changed_facts(*programs, before.numbers)]


# ---- comparing ---------------------------------------------------------------------------------------------------


def _compare_reached(found: Preview, sides: Sides, changed: list[Changed], until: float, most: int) -> Preview:
    """Ask the questions that the difference reaches."""
    before, after = sides
    programs = (before.program, after.program)
    kinds, are_all = kinds_of(reached(*programs, [each.head for each in changed]), programs)
    if before.cases.number is None:  # no active policy, and every fact counts: only decisions can be compared
        kinds = [kind for kind in kinds if kind.is_decision]
    compared = PolicyComparison(sides, Sampler(sides, changed, found.seed, until), until, most).compared(kinds)
    flips = [Flip(goal, is_new) for each in compared for goal, is_new in each.examples]
    return replace(found, kinds=compared, are_all=are_all, flips=flips)


def _compare_given(found: Preview, sides: Sides, given: list[GivenQuestion], until: float, most: int) -> Preview:
    flips: list[Flip] = []
    refused, otherwise = list(found.refused), 0
    for index, each in enumerate(given):
        left = until - time.monotonic()
        if left <= 0:
            refused.append(f"{len(given) - index:,} checks: the time limit was reached")
            break
        try:
            with run.limited(max(left, _SHORTEST)):
                differ = differing(_beside(sides, each), each, most)
        except AuthzError as reason:
            refused.append(f"{each[0]}: {reason.message}")
            continue
        otherwise += bool(differ)
        flips += [Flip(goal, is_new, each) for goal, is_new in differ]
    return replace(found, given=len(given), answered_otherwise=otherwise, refused=refused, flips=flips)


def _beside(sides: Sides, given: GivenQuestion) -> Sides:
    """Return the sides with one question's context facts, which count for no other question."""
    before, after = (side.beside(each.context) if each.context else side for side, each in zip(sides, given))
    return before, after


def preview_to_json(found: Preview) -> dict[str, object]:
    report = found.draft.report
    return {
        "decisions": found.decisions,
        "differ": found.differ,
        "differences": [{"check": flip.text, "allowed": flip.is_allowed} for flip in found.flips],
        "tests": results_of(report) if report.tests else "none",
        "failed_tests": [test.name for test in report.tests if test.failures],
        "unused_facts": [f"{unused.signature}: {unused.facts}" for unused in found.unused],
    }


# ---- explaining --------------------------------------------------------------------------------------------------


def _with_some_explained(sides: Sides, flips: Sequence[Flip], until: float) -> list[Flip]:
    """Explain the first flips of each group while there is time."""
    for session in sides:
        session.patience = until - session.started
    seen: Counter[tuple] = Counter()
    found, explained = [], 0
    most = max(1, MAX_EXPLAINED // max(1, len({_sort(flip) for flip in flips})))
    for flip in flips:
        seen[_sort(flip)] += 1
        if seen[_sort(flip)] <= most and explained < MAX_EXPLAINED and time.monotonic() < until:
            flip, explained = _explained(sides, flip, until), explained + 1
        found.append(flip)
    return found


def _sort(flip: Flip) -> tuple:
    """Return the group of a flip: predicate, direction, types, and string arguments (actions)."""
    args = ((arg.type, arg.id if arg.type == STRING else "") for arg in flip.goal.args)
    return flip.goal.predicate, flip.is_allowed, *args


def _explained(sides: Sides, flip: Flip, until: float) -> Flip:
    try:
        with run.limited(max(until - time.monotonic(), _SHORTEST)):
            both = _beside(sides, flip.given) if flip.given else sides
            return replace(flip, sides=tuple([explain_goal(session, flip.goal) for session in both]))
    except AuthzError:
        return flip  # the difference is known all the same


# ---- Data for the page of a preview that its template cannot compute ----------------------------------------------

_MOST_FLIPS = 300  # changed answers
_FIRST_FLIPS = 20  # of them visible at once, in each direction
_MOST_FAILURES = 50  # of tests

_Explained = tuple[Flip, list]  # a changed answer, with both policies' explanations


@dataclass(frozen=True, slots=True)
class FlipGroup:
    """Newly allowed or newly denied answers: those visible at once, and the rest."""

    title: str
    count: str
    shown: Sequence[_Explained]
    rest: Sequence[_Explained]


def previewed(found: Preview, most: int = _MOST_FLIPS) -> dict[str, object]:
    flips = found.flips[:most]
    explained = [(flip, [(side, page_lines(side)) for side in flip.sides]) for flip in flips]
    kinds = [(each.tally.flips, (each.kind, _numbers(each), each.extent)) for each in found.kinds]
    failures = excerpts_of_failures(found.draft.program.source, found.draft.report)
    return {
        "flips": explained,
        "groups": [group for group in _groups(found, explained) if group.shown],
        "differ": f"{found.differ:,}",
        "hidden": f"{found.differ - len(flips):,}" if found.differ > len(flips) else "",
        "failing": sum(bool(test.failures) for test in found.draft.report.tests),
        "failures": failures[:_MOST_FAILURES],
        "hidden_failures": len(failures[_MOST_FAILURES:]),
        "kinds": [shown for differs, shown in kinds if differs],
        "same_kinds": [shown for differs, shown in kinds if not differs],
    }


def _groups(found: Preview, explained: Sequence[_Explained]) -> Iterator[FlipGroup]:
    gained = sum(each.tally.gained for each in found.kinds)
    lost = sum(each.tally.lost for each in found.kinds)
    for is_allowed, title, total in ((True, "Newly allowed", gained), (False, "Newly denied", lost)):
        flips = [each for each in explained if each[0].is_allowed == is_allowed]
        count = f"{len(flips):,} of {total:,} shown" if total > len(flips) else f"{len(flips):,}"
        yield FlipGroup(title, count, flips[:_FIRST_FLIPS], flips[_FIRST_FLIPS:])


def _numbers(compared: Compared) -> list[str]:
    tally = compared.tally
    return [f"{number:,}" for number in (tally.answers, tally.gained, tally.lost)]
