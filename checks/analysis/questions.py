"""Questions about all facts: does a policy grant more than another, can a claim fail, how can a denial be lifted?

Answers are also texts, in which facts that were found are policy tests.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, zip_longest
from math import inf
from typing import NamedTuple, cast

from django.utils.functional import SimpleLazyObject

from checks.analysis.proofs import FACT, Slice, all_atoms
from checks.analysis.search import (
    DECISIONS,
    ENOUGH,
    MOST_IDS,
    REQUEST_MEMORY,
    SECONDS,
    UNKNOWN,
    AnswerSetProgram,
    Claim,
    Solver,
    Witness,
    fact_key,
    holds,
    request_solver,
    searched,
)
from checks.asking import run
from checks.asking.advice import MaybeTyped, Unknown, Untyped, unknown_words
from checks.asking.question import Question, check_predicate
from checks.asking.run import in_memory
from checks.asking.snapshot import Snapshot
from checks.explain.cases import ANY
from facts.read import facts_about, facts_of
from facts.wire import Fact, fact_to_json
from policy.active import active_program
from policy.core.clock import short_text_of
from policy.errors import AuthzError
from policy.language import ast, parse
from policy.language.ast import print_term
from policy.language.source import PolicyRejected, Problem, Source, Span
from policy.management import command
from policy.publishing import AssertionOutcome, NamedPolicy
from policy.rules import compile_text
from policy.rules.changes import ArgumentSet, AtomSet, changed_rules, head_of, reached
from policy.rules.components import reachable
from policy.rules.program import Invariant, Program, Signature
from policy.values import ACTOR, PRIMITIVES, RESOURCE, STRING, Value, quoted

SAME, MORE, UNDECIDED = 0, 1, 2  # exit statuses of commands
ALLOW = "allow"
_ACTION, _RESOURCE = 1, 2  # places in `allow`


@contextmanager
def analysis(seconds: float) -> Iterator[Solver]:
    """Begin a command's searches: it may have no database, in which the engine could confirm what they find."""
    with in_memory(), Solver(seconds) as solver:
        yield solver


def status_of(claims: Sequence[Claim]) -> int:
    if any(claim.witness for claim in claims):
        return MORE
    return SAME if all(claim.is_enough for claim in claims) else UNDECIDED


def test_lines(witness: Witness, title: str, program: Program) -> Iterator[str]:
    """Yield a policy test with the facts, which passes by the program that is given."""
    for signature in dict.fromkeys(fact.signature for fact in witness.facts):
        if not program.accepts(signature.predicate, signature.types):
            yield f"# This policy does not accept such facts. Add: declare {signature};"
    if witness.is_timed:
        yield f"# At {short_text_of(witness.now)}: a test cannot set the time."
    setup = ["  setup {", *(f"    {fact};" for fact in witness.facts), "  }"] if witness.facts else []
    yield from [f"test {quoted(title)} {{", *setup, f"  assert {witness.atom};", "}"]


# ---- comparing two policies ----------------------------------------------------------------------------------------


class Difference(NamedTuple):
    """The claims that a new policy grants no more of a permission, and no less, and what was found about them."""

    permission: str  # such as `read on Document`
    more: Claim
    less: Claim


def compared(old: Program, new: Program, solver: Solver, most: int = MOST_IDS) -> list[Difference]:
    """Compare what two policies can allow, by permission; all others are the same, since no rule of them differs."""
    found = [Difference(permission, *both_ways(new, old, goal)) for permission, goal in differing(old, new)]
    searched([claim for each in found for claim in (each.more, each.less)], solver, most)
    return found


def both_ways(
    old: Program, new: Program, goal: AtomSet, other: AtomSet | None = None, by_rules: bool = False
) -> tuple[Claim, Claim]:
    """Return the claims that each goal holds only where the other does."""
    one, two = (
        cast(Slice, SimpleLazyObject(partial(Slice, *side)))  # made in the time of the search: there may be very many
        for side in ((old, goal), (new, other or goal))
    )
    return Claim(one, two, by_rules), Claim(two, one, by_rules)


def differing(old: Program, new: Program) -> list[tuple[str, AtomSet]]:
    """Return the permissions that may differ, such as `read on Document`, each with its goal."""
    starts = [rule.head for rule in changed_rules(old, new)]
    for side, other in ((old, new), (new, old)):  # fact patterns that only one of them accepts
        for key, patterns in side.accepted.items():
            starts += (AtomSet.of(key[0], types) for types in patterns if types not in other.accepted.get(key, ()))
    found: dict[AtomSet, tuple[str, str]] = {}
    for atoms in (each.atoms for each in reached(old, new, starts) if each.atoms.predicate == ALLOW):
        either = zip(*(all_atoms(program, atoms.key).types for program in (old, new)))
        slots = [ArgumentSet(frozenset().union(*types)) for types in either]
        for resource in sorted(atoms.types[_RESOURCE]) if len(slots) > _RESOURCE else [""]:
            for action, slot in _actions(atoms, resource, old, new):
                given = {_ACTION: slot, _RESOURCE: ArgumentSet(frozenset((resource,)))}
                goal = AtomSet(ALLOW, tuple(given.get(place, each) for place, each in enumerate(slots)))
                found[goal] = resource, action
    ordered = sorted(found.items(), key=lambda item: (item[1], len(item[0].args)))
    return [(f"{action} on {resource}" if resource else action, goal) for goal, (resource, action) in ordered]


def _actions(atoms: AtomSet, resource: str, *programs: Program) -> Iterator[tuple[str, ArgumentSet]]:
    """Yield actions by name: one of them stands for all names that no policy knows, one for all that are no names."""
    if len(atoms.args) <= _ACTION:
        yield "any action", ArgumentSet(frozenset())
        return
    action = atoms.args[_ACTION]
    if action.only is not None:
        yield action.only.id if action.only.type == STRING else action.only.noted, action
        return
    if STRING in action.types:
        keys = [(name, len(atoms.args)) for name in DECISIONS]
        heads = [head_of(rule) for each in programs for key in keys for rule in each.rules_by_predicate.get(key, ())]
        known = {head.values[_ACTION] for head in heads if not resource or resource in head.types[_RESOURCE]}
        names = {value.id for value in known if value and value.type == STRING}
        for each in programs:
            names.update(each.types[resource].permissions if resource in each.types else each.global_permissions)
        others = frozenset().union(*(program.names for program in programs)) - names
        new = next(name for name in map("other{}".format, count(1)) if name not in others | names)
        yield from ((name, ArgumentSet.of([Value(STRING, name)])) for name in names)
        yield "any other action", ArgumentSet.of(Value(STRING, each) for each in (*others, new))
    if no_names := action.types - {STRING}:
        yield "any action that is no String", ArgumentSet(no_names)


def report(old: NamedPolicy, new: NamedPolicy, solver: Solver, allowed: Sequence[str] = ()) -> tuple[list[str], int]:
    """Compare two policies with names; return lines, and the exit status of a command."""
    found = compared(old[1], new[1], solver)
    status = status_of([each.more for each in found if each.permission not in allowed])
    lines = list(comparison_lines(found, old, new))
    if status:  # otherwise nothing depends on them
        others = sorted({*allowed} - {each.permission for each in found})
        lines += (f"`--allow {name!r}` matches none of these permissions" for name in others)
    return lines, status


def compared_policies(
    old: NamedPolicy, new: NamedPolicy, seconds: float, allowed: Sequence[str]
) -> tuple[list[str], int]:
    with analysis(seconds) as solver:
        return report(old, new, solver, allowed)


def compared_on_page(environment_id: int, text: str) -> list[str]:
    """Compare the active policy with a text."""
    old, new = active_program(environment_id) or compile_text(""), compile_text(text)
    with request_solver() as solver:
        return report(("the active policy", old), ("this policy", new), solver)[0]


def comparison_lines(found: Sequence[Difference], old: NamedPolicy, new: NamedPolicy) -> Iterator[str]:
    if not found:
        yield "No difference: the rules that decisions depend on are the same."
        return
    tally: Counter[str] = Counter()
    for permission, more, less in found:
        pair = {"more": more, "less": less}
        if all(claim.ids == inf for claim in pair.values()):
            told = ["the same (proved)"]
        else:
            told = [f"grants {w}" if claim.witness else f"not {w} ({claim.extent})" for w, claim in pair.items()]
        yield f"{permission}: {'; '.join(told)}"
        for claim, (name, program), (other, _) in zip(pair.values(), (new, old), (old, new)):
            if claim.witness:
                lines = test_lines(claim.witness, f"{permission}: allowed by {name}, not by {other}", program)
                yield from (f"  {line}" for line in lines)
        is_same = more.is_enough and less.is_enough
        tally.update([word for word in pair if pair[word].witness] or ["same" if is_same else "undecided"])
    told = [f"{tally[word]:,} {'grants' if tally[word] == 1 else 'grant'} {word}" for word in ("more", "less")]
    told.append(f"{tally['same']:,} without a difference")
    if tally["undecided"]:
        told.append(f"{tally['undecided']:,} undecided")
    yield f"{command.counted(len(found), 'permission')} compared: {', '.join(told)}."


# ---- proving a claim -----------------------------------------------------------------------------------------------


def stated(program: Program, goal: str, condition: str = "") -> Claim:
    """Return the claim that a goal such as `allow(u: User, "read", Document{"plan"})` never holds with a condition.

    It is a predicate of its own: `claim_1(u: User, "read", d: Doc) if allow(u, "read", d) and (not ...)`.
    """
    head = _goal(goal)
    name = next(each for each in map("claim_{}".format, count(1)) if each not in program.predicates)
    unused = next(each for each in map("any{}_".format, count(1)) if each not in goal + condition)
    types = [f": {each.type.text}" if isinstance(each, ast.Parameter) else "" for each in head.params]
    written = [print_term(each).removesuffix(typed) for each, typed in zip(head.params, types)]
    terms = [f"{unused}{place}" if term == "_" else term for place, term in enumerate(written)]
    params = ", ".join(map("".join, zip(terms, types)))
    body = f"{head.predicate.text}({', '.join(terms)})" + (f" and ({condition})" if condition else "")
    try:
        extended = compile_text(f"{program.source.text}\n{name}({params}) if {body};\n")
    except PolicyRejected as reason:
        raise AuthzError(f"the claim is not valid: {reason.problems[0].message}") from None
    for called in sorted(extended.predicates - program.predicates - {name}):
        check_predicate(program, called)
    extended = replace(extended, accepted=program.accepted)  # the claim's own calls would make it accept more facts
    part = Slice(extended, all_atoms(extended, (name, len(terms))))
    return Claim(part, by_rules=True, shown=head.predicate.text)


def _goal(goal: str) -> ast.Head:
    reason, text = "", goal.strip().removesuffix(";")
    try:
        match parse(Source(f"{text};")).items:
            case (ast.Rule(head=head, body=None),):
                return head
    except PolicyRejected as rejected:
        problem = rejected.problems[0]
        # A message about the semicolon that was added here would name what the user did not write.
        reason = ": it is incomplete" if problem.span.start >= len(text) else f": {problem.message}"
    raise AuthzError(f'`{goal}` is not a goal{reason}. Write it as `allow(u: User, "read", Document{{"plan"}})`.')


def check_words(program: Program, goal: str) -> None:
    """Refuse a goal with words that the policy does not have: "never" is true of a misspelled action."""
    head = _goal(goal)
    for param in head.params:
        match param:  # `User:ann`, as facts are written, is a variable `User` of the type `ann` here
            case ast.Parameter(ast.Variable(name), ast.Name(word)) if program.knows(name) and not (
                program.knows(word) or word in program.subtypes
            ):
                raise AuthzError(f"`{name}:{word}` is not a value in a goal. Write it as `{name}{{{quoted(word)}}}`.")
    if unknown := _unknown_in(program, head):
        raise AuthzError("; ".join(map(str, unknown)))


def _unknown_in(program: Program, goal: ast.Head) -> list[Unknown | Untyped]:
    words: list[MaybeTyped] = []
    for param in goal.params:
        match param:
            case ast.Literal(value):
                words.append((value.type, value.id))
            case ast.Parameter(type=ast.Name(name)) if program.knows(name) or name not in program.subtypes:
                words.append((name, None))
            case _:  # of any type, or of an abstract one
                words.append((None, None))
    return list(unknown_words(program, goal.predicate.text, words))


def proof_lines(claim: Claim, goal: str) -> Iterator[str]:
    if claim.witness:
        yield f"{claim.extent}: these facts allow it"
        yield from test_lines(claim.witness, f"{goal} is possible", claim.holds.program)
    else:
        told = f"{'never' if claim.ids == inf else 'no counterexample'} by the rules: " if claim.ids else ""
        yield f"{told}{claim.extent}"


def checked_never(program: Program, assertions: Sequence[Invariant]) -> list[AssertionOutcome]:
    """Check the `assert_never` of a policy's tests, within a time limit for all of them together."""
    claims: list[Claim | str] = []  # or why there is none
    try:
        with Solver(memory=REQUEST_MEMORY, waits=True) as solver:  # publishing over HTTP checks them, too
            for each in assertions:
                if solver.left <= 0:  # compiling a claim takes as long as compiling the policy
                    break
                try:
                    claims.append(stated(program, each.goal, each.condition))
                except AuthzError as reason:
                    claims.append(reason.message)
            searched([claim for claim in claims if isinstance(claim, Claim)], solver)
    except AuthzError as reason:
        claims = [reason.message] * len(assertions)
    return [_outcome(program, *pair) for pair in zip_longest(assertions, claims)]


def _outcome(program: Program, assertion: Invariant, claim: Claim | str | None) -> AssertionOutcome:
    line, _ = program.source.position(assertion.span.start)
    outcome = AssertionOutcome(assertion.text, line, False)
    match claim:
        case str():
            return replace(outcome, message=claim)
        case Claim(witness=Witness(facts, atom)):
            lines = [f"with {fact.noted}" for fact in facts] or ["with no facts"]
            told = f"expected never, found {atom.noted}"
            return replace(outcome, message=told, too_much=True, explanation=lambda _: lines)
        case Claim(is_enough=True):
            extent = "; ".join([claim.extent, *map(str, _unknown_in(program, _goal(assertion.goal)))])
            return replace(outcome, passed=True, extent=extent)
    extent = claim.extent if claim else UNKNOWN
    return replace(outcome, message=f"not decided within {SECONDS:g} seconds: {extent}")


# ---- what would allow it -------------------------------------------------------------------------------------------

MOST_WAYS = 5
MOST_STORED = 1_000
_OF_EACH = 40  # facts that mention a value, for each place in facts


class Way(NamedTuple):
    """Facts to insert and to delete, after which a goal holds."""

    insert: list[Fact]
    delete: list[Fact]

    def __str__(self) -> str:
        return "; ".join(f"{verb} {fact.noted}" for verb, facts in self._asdict().items() for fact in facts)


@dataclass(frozen=True)
class Ways:
    """The smallest ways, different in kind, and notes about the search."""

    ways: Sequence[Way] = ()
    notes: tuple[str, ...] = ()
    holds: bool = False  # already

    def to_json(self) -> dict[str, object]:
        changes = [{verb: list(map(fact_to_json, facts)) for verb, facts in way._asdict().items()} for way in self.ways]
        return {"changes": changes, "notes": list(self.notes)}


def ways(claim: Claim, stored: Iterable[Fact], solver: Solver, most: int = MOST_WAYS, now: int | None = None) -> Ways:
    """Search for the smallest changes of facts after which a stated goal holds, over the stored facts given."""
    keys = {goal.key for goal in claim.holds.facts}
    before = {fact for fact in stored if fact_key(fact) in keys}
    found: list[Way] = []
    for ids in range(1, claim.few + 1):
        if found and ids > ENOUGH:
            break
        program = claim.program(ids, run.current_time() if now is None else now, sorted(before, key=str))
        for way in found:
            _exclude(way, program)
        while len(found) < most:
            seconds = solver.left / (1 if found else 1.5)
            if (witness := claim.search(program, ids, solver, seconds)) is None:
                break
            changes = before.symmetric_difference(witness.facts)
            for fact in sorted(changes, key=str):  # a model may have needless ones, if there was no time to improve it
                fewer = changes - {fact}
                changes = fewer if solver.left > 0 and holds(claim.holds, before ^ fewer, witness) else changes
            if not changes:
                return Ways(notes=("already true",), holds=True)
            found.append(Way(sorted(changes - before, key=str), sorted(changes & before, key=str)))
            _exclude(found[-1], program)
    found.sort(key=lambda way: (sum(map(len, way)), str(way)))
    none = f"no way by the rules{'' if claim.ids == inf else ' found'}: {claim.extent}"
    return Ways(found, () if found else (none,))


def _exclude(way: Way, program: AnswerSetProgram) -> None:
    """Exclude further changes of the same kind: the same but for the ids of actors and resources, and new numbers."""
    kinds = []
    for fact in (*way.insert, *way.delete):
        same = {each for each in fact.args if each.type in PRIMITIVES and each in program.numbers}
        args = [each if each in same else frozenset((each.type,)) for each in fact.args]
        terms, domains = program.any_of(AtomSet.of(fact.predicate, args).args)
        present, absent = (
            program.atom(prefix, fact_key(fact), terms) for prefix in ("fs" if fact in way.insert else "sf")
        )
        kinds.append(f"kind{len(program.lines)}")
        program.add(f"{kinds[-1]} :- {present}, not {absent}, {domains}.")
    program.add(f":- {', '.join(kinds)}.")


def stored_around(session: Snapshot, part: Slice) -> tuple[list[Fact], list[str]]:
    """Return stored facts that can matter to the goal and are connected with its values, and a note if not all.

    What rules ask of any value, as `not is_frozen(_)` does, is connected with nothing: these facts are returned, too.
    """
    numbers = {each: number for each, number in session.numbers.items() if _is_met(each, part.facts)}
    found: dict[Fact, None] = {}
    is_whole = True

    def kept(read: Iterator[Fact]) -> list[Value]:
        """Keep some facts, and return the actors and resources in them."""
        nonlocal is_whole
        facts = list(read) if len(found) <= MOST_STORED else []
        is_whole = is_whole and len(facts) <= _OF_EACH
        facts = [fact for fact in facts if session.place_of(fact) is not None]
        found.update(dict.fromkeys(facts))
        return [arg for fact in facts for arg in fact.args if arg.type not in PRIMITIVES]

    far = reachable([goal for rule in part.all_rules for goal in rule.apart], part.called)
    lonely = [facts_of({each: number}, _OF_EACH + 1) for each, number in numbers.items() if _is_met(each, far)]
    starts = [value for value in sorted(part.values) if value.type not in PRIMITIVES]
    starts += (value for facts in lonely for value in kept(facts))
    reachable(starts, lambda value: kept(facts_about(numbers, value, _OF_EACH + 1)))
    stored = list(found)[:MOST_STORED]
    is_whole = is_whole and len(found) == len(stored)
    return stored, [] if is_whole else [f"only {len(stored):,} stored facts around the goal were considered"]


def _is_met(signature: Signature, goals: Iterable[AtomSet]) -> bool:
    return any(map(AtomSet.of_signature(replace(signature, predicate=f"{FACT}{signature.predicate}")).meets, goals))


def ways_to_allow(session: Snapshot, question: Question) -> Ways:
    """Return what would make the question's call true, over the session's stored and context facts."""
    predicate, names = question.calls[0]
    values = tuple([Value(question.variables[name].type, question.variables[name].one) for name in names])
    if any(value.id == ANY for value in values):
        return Ways(notes=("`*` stands for any value: ask about one value",))
    try:
        with request_solver() as solver:
            claim = Claim(Slice(session.program, AtomSet.of(predicate, values)), by_rules=True)
            stored, limits = stored_around(session, claim.holds)
            context = [replace(fact, expires_at=None) for fact in session.context]
            found = ways(claim, [*stored, *context], solver, now=session.now)
    except AuthzError as reason:
        return Ways(notes=(reason.message,))
    return replace(found, notes=(*found.notes, *limits))


# ---- What no fact can ever make matter: rules without effect, permissions that nobody can have ----------------------

Notices = Iterator[tuple[Span, str, Sequence[Claim]]]  # what is said of a place, if it stands with all of the claims


def without_effect(program: Program, solver: Solver) -> tuple[list[Problem], bool]:
    """Return a notice for each part of the policy that has no effect, and whether there was time to check all parts."""
    found = []
    for span, told, claims in chain(_roles(program), _permissions(program), _rules(program)):
        for claim in claims:
            if solver.left > 0:
                searched([claim], solver, claim.few)
            if not claim.is_enough:
                break
        if claims and all(claim.is_enough for claim in claims):
            extent = min(claims, key=lambda claim: claim.ids).extent
            found.append(Problem(f"{told} ({extent})", span, severity="notice"))
        if solver.left <= 0:  # also what is proved without a search takes time
            break
    return sorted(found, key=lambda problem: problem.span.start), solver.left > 0


def _declared(program: Program, keyword: str) -> Iterator[tuple[str, str, Span]]:
    """Yield the names that blocks declare, each with its block."""
    for block in parse(program.source).items:
        if isinstance(block, ast.Block) and block.name is not None and program.knows(block.name.text):
            for item in block.items:
                if isinstance(item, ast.NameList) and item.keyword.text == keyword:
                    yield from ((block.name.text, name.text, name.span) for name in item.names)


def _decisions(program: Program) -> list[AtomSet]:
    return [all_atoms(program, key) for key in program.rules_by_predicate if key[0] == ALLOW]


def _roles(program: Program) -> Notices:
    """Tell of the roles that no rule on which a decision depends asks for."""
    decisions = Slice(program, *_decisions(program))
    everything = program.subtypes[ACTOR] | program.subtypes[RESOURCE]
    for block, name, span in _declared(program, "roles"):
        wanted = AtomSet.of("has_role", [everything, Value(STRING, name), program.subtypes[block]])
        if not any(map(wanted.meets, decisions.rules)):
            yield span, f'the role "{name}" grants nothing', [Claim(decisions, ids=inf)]


def _permissions(program: Program) -> Notices:
    """Tell of the permissions that nobody can have, and of those that everybody has who has another one."""
    decisions = [each for each in _decisions(program) if len(each.args) > _RESOURCE]
    granted: dict[str, dict[str, list[AtomSet]]] = defaultdict(dict)  # by block
    for block, name, span in _declared(program, "permissions"):
        slots = ArgumentSet.of([Value(STRING, name)]), ArgumentSet(program.subtypes[block])
        goals = [AtomSet(ALLOW, (each.args[0], *slots, *each.args[3:])) for each in decisions]
        claims = [Claim(Slice(program, goal), by_rules=True) for goal in goals]
        yield span, f'nobody can have "{name}"', claims
        if not any(claim.witness for claim in claims):
            continue
        for other, known in granted[block].items():
            claims = [
                claim for pair in zip(known, goals) for claim in both_ways(program, program, *pair, by_rules=True)
            ]
            yield span, f'"{name}" is the same as "{other}"', claims
            if all(claim.is_enough for claim in claims):
                break
        else:
            granted[block][name] = goals


def _rules(program: Program) -> Notices:
    """Tell of the rules without which every decision would be the same."""
    for origin in program.written:
        without = replace(program, rules=tuple(rule for rule in program.rules if rule.origin != origin))
        goals = [goal for _, goal in differing(program, without)]
        claims = [claim for goal in goals for claim in both_ways(program, without, goal, by_rules=True)]
        yield origin, "this rule changes no decision", claims


def deep_notices(program: Program, seconds: float) -> tuple[list[Problem], bool]:
    with analysis(seconds) as solver:
        return without_effect(program, solver)


# ---- commands ------------------------------------------------------------------------------------------------------

POLICY = "a version number, `active`, or a file (- for standard input)"


class AnalysisCommand(command.PolicyCommand):
    """Asks about policies that may be files: these need no database. Errors end it with 2, since 1 is an answer."""

    failure_status = UNDECIDED

    def add_arguments(self, parser):
        super().add_arguments(parser)
        command.add_seconds(parser, "search")

    def add_goal(self, parser, example):
        parser.add_argument("goal", metavar="GOAL", help=f"For example `{example}`.")
        parser.add_argument("--policy", default=command.ACTIVE, help=f"The policy: {POLICY} (default: active).")

    def environment_named(self, slug: str) -> str:
        return slug

    def claim(self, environment: str, policy: str, goal: str, condition: str = "") -> Claim:
        _, program = command.policy_named(environment, policy)
        check_words(program, goal)
        return stated(program, goal, condition)
