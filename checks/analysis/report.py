"""Results of the analysis as text, with what was found as policy tests."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from django.core.management.base import CommandError

from checks.analysis.questions import (
    PolicyDifferences,
    Way,
    Ways,
    compared,
    stated,
    stored_around,
    ways,
    without_effect,
)
from checks.analysis.search import SECONDS, Finding, Solver, Verdict, Witness, request_solver
from checks.asking.question import Question
from checks.asking.run import in_memory
from checks.asking.snapshot import Snapshot, fact_of_atom
from checks.explain.cases import ANY
from facts.wire import Fact, fact_to_json
from policy.active import active_program
from policy.core.clock import short_text_of
from policy.errors import AuthzError, Unavailable
from policy.language.source import Problem
from policy.management import command
from policy.models import DEFAULT_SLUG
from policy.rules import compile_text
from policy.rules.program import Atom, Program
from policy.values import Value, quoted

SAME, MORE, UNDECIDED = 0, 1, 2  # exit statuses


def status_of(found: PolicyDifferences, allowed: Iterable[str] = ()) -> int:
    if found.grants_more(allowed):
        return MORE
    return UNDECIDED if found.undecided(allowed) else SAME


def status_of_proof(found: Finding) -> int:
    if found.verdict == Verdict.FOUND:
        return MORE
    return SAME if found.is_enough else UNDECIDED


def comparison_lines(found: PolicyDifferences, old: tuple[str, Program], new: tuple[str, Program]) -> Iterator[str]:
    for each in found.differences:
        told = [
            f"grants {word}" if finding.verdict == Verdict.FOUND else f"not {word} ({finding.extent})"
            for word, finding in (("more", each.more), ("less", each.less))
        ]
        is_same = each.more.verdict == each.less.verdict == Verdict.PROVED
        yield f"{each.permission}: {'the same (proved)' if is_same else '; '.join(told)}"
        for finding, (name, program), other in ((each.more, new, old[0]), (each.less, old, new[0])):
            if finding.witness:
                lines = test_lines(finding.witness, f"{each.permission}: allowed by {name}, not by {other}", program)
                yield from (f"  {line}" for line in lines)
    yield summary(found)


def summary(found: PolicyDifferences) -> str:
    if not found.differences:
        return "No difference: the rules that decisions depend on are the same."
    more = sum(each.more.verdict == Verdict.FOUND for each in found.differences)
    less = sum(each.less.verdict == Verdict.FOUND for each in found.differences)
    same = sum(each.is_same for each in found.differences)
    kinds = command.counted(len(found.differences), "permission")
    return f"{kinds} compared: {_granted(more, 'more')}, {_granted(less, 'less')}, {same:,} without a difference."


def _granted(number: int, what: str) -> str:
    return f"{number:,} {'grants' if number == 1 else 'grant'} {what}"


def test_lines(witness: Witness, title: str, program: Program, expected: bool = True) -> Iterator[str]:
    """Yield a policy test with the facts, which passes by the program that is given."""
    types = {f"{fact.predicate}({', '.join(_types(fact))})": fact for fact in witness.facts}
    for signature, fact in types.items():
        if not program.accepts(fact.predicate, tuple(_types(fact))):
            yield f"# This policy does not accept such facts. Add: declare {signature};"
    if witness.is_timed:
        yield f"# At {short_text_of(witness.now)}: a test cannot set the time."
    yield f"test {quoted(title)} {{"
    if witness.facts:
        yield "  setup {"
        yield from (f"    {fact};" for fact in witness.facts)
        yield "  }"
    yield f"  {'assert' if expected else 'assert_not'} {witness.atom};"
    yield "}"


def _types(fact: Atom) -> list[str]:
    return [arg.type for arg in fact.args if isinstance(arg, Value)]


def proof_lines(found: Finding, goal: str, program: Program) -> Iterator[str]:
    match found.verdict:
        case Verdict.PROVED:
            yield "never: proved"
        case Verdict.NONE:
            yield f"no counterexample: {found.extent}"
        case Verdict.UNKNOWN:
            yield found.extent
    if found.witness:
        yield "found: these facts allow it"
        yield from test_lines(found.witness, f"{goal} is possible", program)


def way_lines(found: Ways) -> Iterator[str]:
    if found.holds:
        yield "already true"
        return
    for way in found.ways:
        yield way_text(way)
    if not found.ways:
        yield "no way found" if found.is_complete else "no way found before the time or memory limit was reached"


def way_text(way: Way) -> str:
    changes = [*(("insert", fact) for fact in way.inserts), *(("delete", fact) for fact in way.deletes)]
    return "; ".join(f"{verb} {_noted(fact)}" for verb, fact in changes)


def _noted(fact: Atom) -> str:
    return Fact(fact.predicate, tuple([each for each in fact.args if isinstance(each, Value)])).noted


def compared_policies(
    old: tuple[str, Program], new: tuple[str, Program], seconds: float, allowed: Iterable[str]
) -> tuple[list[str], int]:
    """Compare two policies with names, for a command; return the lines of the report, and an exit status."""
    with in_memory(), Solver(seconds) as solver:
        found = compared(old[1], new[1], solver)
    return [*comparison_lines(found, old, new)], status_of(found, allowed)


def deep_notices(program: Program, seconds: float) -> tuple[list[Problem], bool]:
    """Return what has no effect, for a command, which may have no database."""
    with in_memory(), Solver(seconds) as solver:
        return without_effect(program, solver)


# ---- pages and responses ------------------------------------------------------------------------------------------


def compared_on_page(environment_id: int, text: str) -> list[str]:
    """Compare the active policy with a text."""
    active = active_program(environment_id) or compile_text("")
    old, new = ("the active policy", active), ("this policy", compile_text(text))
    with request_solver() as solver:
        return list(comparison_lines(compared(active, new[1], solver), old, new))


class FoundWays(NamedTuple):
    """Changes of facts, each of which makes a goal true, and notes about the search."""

    ways: tuple[Way, ...]
    notes: tuple[str, ...]

    @property
    def changes(self) -> tuple[str, ...]:
        return tuple(map(way_text, self.ways))

    def to_json(self) -> dict[str, object]:
        changes = [{"insert": _facts_to_json(way.inserts), "delete": _facts_to_json(way.deletes)} for way in self.ways]
        return {"changes": changes, "notes": list(self.notes)}


def _facts_to_json(atoms: Iterable[Atom]) -> list[dict[str, object]]:
    return [fact_to_json(fact_of_atom(atom)) for atom in atoms]


def ways_to_allow(session: Snapshot, question: Question) -> FoundWays:
    """Return what would make the question's call true, over the session's stored and context facts."""
    predicate, names = question.calls[0]
    values = tuple([Value(question.variables[name].type, question.variables[name].one) for name in names])
    if any(value.id == ANY for value in values):
        return FoundWays((), ("`*` stands for any value: ask about one value",))
    try:
        with request_solver() as solver:
            statement = stated(session.program, str(Atom(predicate, values)))
            stored, is_whole = stored_around(session, statement)
            context = [Atom(fact.predicate, fact.args) for fact in session.context]
            found = ways(statement, [*dict.fromkeys((*stored, *context))], solver, now=session.now)
    except AuthzError as reason:
        return FoundWays((), (reason.message,))
    notes = () if found.ways else tuple(way_lines(found))
    limit = () if is_whole else (f"only {len(stored):,} stored facts around the goal were considered",)
    return FoundWays(found.ways, (*notes, *limit))


# ---- commands ------------------------------------------------------------------------------------------------------

POLICY = "a version number, `active`, or a file (- for standard input)"


class AnalysisCommand(command.ServiceCommand):
    """Exits with the status that `analyse` returns. Errors end it with 2, since 1 is an answer."""

    def add_arguments(self, parser):
        parser.add_argument("--environment", default=DEFAULT_SLUG, help="Environment (default: %(default)s).")
        parser.add_argument(
            "--seconds",
            type=command.above_zero,
            default=SECONDS,
            help="Time limit of the search (default: %(default)g).",
        )

    def handle(self, **options: Any) -> None:
        try:
            status = self.analyse(**options)
        except (AuthzError, Unavailable) as reason:
            raise CommandError(reason.message, returncode=UNDECIDED) from None
        if status:
            sys.exit(status)

    def analyse(self, *args: Any, **options: Any) -> int:
        raise NotImplementedError

    def say(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.stdout.write(line)


def policy_named(environment: str, name: str) -> tuple[str, Program]:
    """Return the policy, and how to name it. Files need no database."""
    if command.is_file(name):
        return name, compile_text(command.text_of_file(name), name)
    shown = "the active policy" if name == command.ACTIVE else f"version {name}"
    return shown, compile_text(command.text_of(command.environment_named(environment), name))
