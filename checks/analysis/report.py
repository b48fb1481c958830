"""Results of the analysis as text, with what was found as policy tests, for commands, pages and responses."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from checks.analysis.questions import Difference, Ways, compared, stated, stored_around, ways, without_effect
from checks.analysis.search import SECONDS, Claim, Solver, Verdict, Witness, request_solver
from checks.asking.question import Question
from checks.asking.run import in_memory
from checks.asking.snapshot import Snapshot, fact_of_atom
from checks.explain.cases import ANY
from policy.active import active_program
from policy.core.clock import short_text_of
from policy.errors import AuthzError
from policy.language.source import Problem
from policy.management import command
from policy.publishing import NamedPolicy
from policy.rules import compile_text
from policy.rules.program import Atom, Program
from policy.values import Value, quoted

SAME, MORE, UNDECIDED = 0, 1, 2  # exit statuses


def status_of(claims: Sequence[Claim]) -> int:
    if any(claim.witness for claim in claims):
        return MORE
    return SAME if all(claim.is_enough for claim in claims) else UNDECIDED


def comparison_lines(found: Sequence[Difference], old: NamedPolicy, new: NamedPolicy) -> Iterator[str]:
    for permission, *sides in found:
        is_same = all(claim.verdict == Verdict.PROVED for claim in sides)
        told = [
            f"grants {word}" if claim.witness else f"not {word} ({claim.extent})"
            for word, claim in zip(("more", "less"), sides)
        ]
        yield f"{permission}: {'the same (proved)' if is_same else '; '.join(told)}"
        for claim, (name, program), (other, _) in zip(sides, (new, old), (old, new)):
            if claim.witness:
                lines = test_lines(claim.witness, f"{permission}: allowed by {name}, not by {other}", program)
                yield from (f"  {line}" for line in lines)
    if not found:
        yield "No difference: the rules that decisions depend on are the same."
        return
    more, less = ([each for each in side if each.witness] for side in zip(*(each[1:] for each in found)))
    undecided = sum(not (each.is_same or each.is_found) for each in found)
    counts = {
        "grants more" if len(more) == 1 else "grant more": len(more),
        "grants less" if len(less) == 1 else "grant less": len(less),
        "without a difference": sum(each.is_same for each in found),
        "undecided": undecided,
    }
    summary = ", ".join(f"{number:,} {words}" for words, number in counts.items() if number or words != "undecided")
    yield f"{command.counted(len(found), 'permission')} compared: {summary}."


def test_lines(witness: Witness, title: str, program: Program) -> Iterator[str]:
    """Yield a policy test with the facts, which passes by the program that is given."""
    for signature in dict.fromkeys(fact_of_atom(fact).signature for fact in witness.facts):
        if not program.accepts(signature.predicate, signature.types):
            yield f"# This policy does not accept such facts. Add: declare {signature};"
    if witness.is_timed:
        yield f"# At {short_text_of(witness.now)}: a test cannot set the time."
    yield f"test {quoted(title)} {{"
    if witness.facts:
        yield "  setup {"
        yield from (f"    {fact};" for fact in witness.facts)
        yield "  }"
    yield f"  assert {witness.atom};"
    yield "}"


def proof_lines(claim: Claim, goal: str, program: Program) -> Iterator[str]:
    words = {Verdict.PROVED: "never: ", Verdict.NONE: "no counterexample: "}
    yield f"{words.get(claim.verdict, '')}{claim.extent}{': these facts allow it' if claim.witness else ''}"
    if claim.witness:
        yield from test_lines(claim.witness, f"{goal} is possible", program)


def compared_policies(
    old: NamedPolicy, new: NamedPolicy, seconds: float, allowed: Iterable[str]
) -> tuple[list[str], int]:
    """Compare two policies with names, for a command; return the lines of the report, and an exit status."""
    with in_memory(), Solver(seconds) as solver:
        found = compared(old[1], new[1], solver)
    more = [each.more for each in found if each.permission not in allowed]
    return list(comparison_lines(found, old, new)), status_of(more)


def deep_notices(program: Program, seconds: float) -> tuple[list[Problem], bool]:
    """Return what has no effect, for a command, which may have no database."""
    with in_memory(), Solver(seconds) as solver:
        return without_effect(program, solver)


def compared_on_page(environment_id: int, text: str) -> list[str]:
    """Compare the active policy with a text."""
    active = active_program(environment_id) or compile_text("")
    old, new = ("the active policy", active), ("this policy", compile_text(text))
    with request_solver() as solver:
        return list(comparison_lines(compared(active, new[1], solver), old, new))


def ways_to_allow(session: Snapshot, question: Question) -> Ways:
    """Return what would make the question's call true, over the session's stored and context facts."""
    predicate, names = question.calls[0]
    values = tuple([Value(question.variables[name].type, question.variables[name].one) for name in names])
    if any(value.id == ANY for value in values):
        return Ways(notes=("`*` stands for any value: ask about one value",))
    try:
        with request_solver() as solver:
            claim = stated(session.program, str(Atom(predicate, values)))
            stored, limits = stored_around(session, claim)
            context = [Atom(fact.predicate, fact.args) for fact in session.context]
            found = ways(claim, [*stored, *context], solver, now=session.now)
    except AuthzError as reason:
        return Ways(notes=(reason.message,))
    return replace(found, notes=(*found.notes, *limits))


# ---- commands ------------------------------------------------------------------------------------------------------

POLICY = "a version number, `active`, or a file (- for standard input)"


class AnalysisCommand(command.PolicyCommand):
    """Asks about policies that may be files: these need no database. Errors end it with 2, since 1 is an answer."""

    failure_status = UNDECIDED

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument(
            "--seconds", type=command.above_zero, default=SECONDS,
            help="Time limit of the search (default: %(default)g).",
        )  # fmt: skip

    def environment_named(self, slug: str) -> str:
        return slug
