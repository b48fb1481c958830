"""Questions about all facts: does a policy grant more than another, can a claim fail, how can a denial be lifted?"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from checks.analysis.proofs import GoalPattern, GoalSlot, goal_of, sliced, slot_of
from checks.analysis.search import (
    REQUEST_MEMORY,
    SECONDS,
    Claim,
    Finding,
    OutOfLimits,
    ProgramWriter,
    Side,
    Solver,
    Universe,
    Verdict,
    Witness,
    atom,
    atoms_in_model,
    searched,
)
from checks.asking import run
from checks.asking.advice import Unknown, advice
from checks.asking.question import Asked, check_predicate, question_about
from checks.asking.snapshot import FactsAlone, Snapshot, fact_of_atom
from facts.read import facts_about
from policy.errors import AuthzError
from policy.language import ast, parse
from policy.language.source import PolicyRejected, Problem, Source, Span
from policy.publishing import AssertionOutcome
from policy.rules import compile_text
from policy.rules.changes import AtomSet, Changed, changed_rules, reached
from policy.rules.flatten import atoms_of
from policy.rules.program import Atom, Invariant, Program, Term, Types, Var, types_of
from policy.values import ACTOR, BOOLEAN, INTEGER, PRIMITIVES, RESOURCE, STRING, Value

ALLOW = "allow"
_ACTION, _RESOURCE = 1, 2  # places in `allow`


class EngineDisagrees(AuthzError):
    """The engine answers otherwise than the solver: one of them is wrong."""

    def __init__(self, witness: Witness, expected: bool):
        facts = " ".join(f"{fact};" for fact in witness.facts)
        super().__init__(
            f"internal error: the solver finds that {witness.atom} is {'true' if expected else 'false'} with the facts "
            f"{{ {facts} }}, but the engine does not. Please report this with the policy"
        )


def holds(program: Program, facts: Iterable[Atom], asked: Atom, now: int) -> bool:
    """Ask the engine whether an atom holds over these facts alone."""
    accepted = [fact for fact in facts if program.accepts(fact.predicate, tuple(arg.type for arg in values_of(fact)))]
    signatures = frozenset(fact_of_atom(fact).signature for fact in accepted)
    session = replace(FactsAlone.of_signatures(program, signatures).over(accepted), now=now)
    return session.holds(question_about(asked.predicate, [Asked(arg.type, (arg.id,)) for arg in values_of(asked)]))


def values_of(atom: Atom) -> list[Value]:
    return [arg for arg in atom.args if isinstance(arg, Value)]


def replay(claim: Claim, witness: Witness) -> None:
    """Raise `EngineDisagrees` unless the engine finds the same."""
    for side, expected in ((claim.holds, True), (claim.fails, False)):
        if side is None:
            continue
        args = [
            next(iter(slot.values)) if slot.values and len(slot.values) == 1 else arg
            for arg, slot in zip(witness.atom.args, side.goal.slots)
        ]
        asked = Atom(side.goal.predicate, tuple(args))
        if holds(side.program, witness.facts, asked, witness.now) != expected:
            raise EngineDisagrees(replace(witness, atom=asked), expected)


# ---- comparing two policies ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Permission:
    """Decisions of `allow` on resources of a type; without `action`, about names that neither policy mentions."""

    arity: int
    action: str | None
    resource: str | None

    def __str__(self) -> str:
        action = "any other action" if self.action is None else self.action
        return f"{action} on {self.resource}" if self.resource else action


@dataclass(frozen=True)
class Difference:
    permission: Permission
    more: Finding
    less: Finding

    @property
    def is_same(self) -> bool:
        return Verdict.FOUND not in (self.more.verdict, self.less.verdict)


@dataclass(frozen=True)
class PolicyDifferences:
    """What may differ between two policies; every other permission is the same, since no rule of it differs."""

    differences: tuple[Difference, ...] = ()

    def grants_more(self, allowed: Iterable[str] = ()) -> list[Difference]:
        return [each for each in self._but(allowed) if each.more.verdict == Verdict.FOUND]

    def undecided(self, allowed: Iterable[str] = ()) -> list[Difference]:
        """Return those of which it is not known whether they grant more."""
        return [each for each in self._but(allowed) if each.more.verdict != Verdict.FOUND and not each.more.is_enough]

    def _but(self, allowed: Iterable[str]) -> list[Difference]:
        kept = set(allowed)
        return [each for each in self.differences if str(each.permission) not in kept]


def compared(old: Program, new: Program, solver: Solver, most: int = 12) -> PolicyDifferences:
    """Compare what two policies can allow, by permission."""
    claims: dict[Permission, tuple[Claim, Claim]] = {}
    for permission, goals in differing(old, new).items():
        goal, without = goals
        sides = Side(old, goal), Side(new, goal)
        claims[permission] = (Claim(sides[1], sides[0], without), Claim(sides[0], sides[1], without))
    both = [claim for pair in claims.values() for claim in pair]
    searched(both, solver, run.current_time(), replay, most)
    return PolicyDifferences(
        tuple(Difference(name, more.finding, less.finding) for name, (more, less) in claims.items())
    )


def differing(old: Program, new: Program) -> dict[Permission, tuple[GoalPattern, dict[int, frozenset[Value]]]]:
    """Return a goal for each permission that may differ, with values that its arguments do not have."""
    starts = [each.head for each in (*changed_rules(old, new), *changed_patterns(old, new))]
    atoms = [each.atoms for each in reached(old, new, starts) if each.atoms.predicate == ALLOW and each.atoms.types]
    actors: dict[Permission, Types] = defaultdict(frozenset)
    named: dict[tuple[int, str | None], set[str]] = {}
    for each in atoms:
        arity = len(each.types)
        for resource in sorted(each.types[_RESOURCE]) if arity > _RESOURCE else [None]:
            known = named.setdefault((arity, resource), actions_on(resource, arity, old, new))
            for action in _actions(each, known):
                actors[Permission(arity, action, resource)] |= each.types[0]
    found = {}
    for permission, types in sorted(actors.items(), key=lambda item: (str(item[0].resource), str(item[0]))):
        known = named[permission.arity, permission.resource]
        found[permission] = permission_goal(permission, types, old, new), _without(permission, known)
    return found


def _actions(atoms: AtomSet, known: set[str]) -> list[str | None]:
    if len(atoms.types) <= _ACTION:
        return [None]
    value = atoms.values[_ACTION]
    if value is not None:
        return [value.id] if value.type == STRING else []
    return [*sorted(known), None] if STRING in atoms.types[_ACTION] else []


def permission_goal(permission: Permission, actors: Types, *programs: Program) -> GoalPattern:
    action = GoalSlot(frozenset((STRING,)))
    if permission.action is not None:
        action = slot_of([Value(STRING, permission.action)]) or action
    slots = [GoalSlot(actors), action]
    if permission.resource is not None:
        slots.append(GoalSlot(frozenset((permission.resource,))))
    everything = frozenset().union(*(types for program in programs for types in program.subtypes.values()))
    slots += [GoalSlot(everything)] * (permission.arity - len(slots))
    return GoalPattern(ALLOW, tuple(slots[: permission.arity]))


def _without(permission: Permission, known: set[str]) -> dict[int, frozenset[Value]]:
    if permission.action is not None or permission.arity <= _ACTION:
        return {}
    return {_ACTION: frozenset(Value(STRING, name) for name in known)}


def actions_on(resource: str | None, arity: int, *programs: Program) -> set[str]:
    """Return the actions that the policies know on a type of resource: declared, or in the head of a rule."""
    found: set[str] = set()
    for program in programs:
        if resource is None:
            found.update(program.global_permissions)
        elif resource in program.types:
            found.update(program.types[resource].permissions)
        for predicate in (ALLOW, "has_permission"):
            for rule in program.rules_by_predicate.get((predicate, arity), ()):
                names = [term for term in rule.head.args[_ACTION : _ACTION + 1] if isinstance(term, Value)]
                place = rule.head.args[_RESOURCE] if arity > _RESOURCE else None
                types = {place.type} if isinstance(place, Value) else rule.types[place] if place else {None}  # type: ignore[index]
                found.update(value.id for value in names if value.type == STRING and resource in types)
    return found


def changed_patterns(old: Program, new: Program) -> Iterator[Changed]:
    """Yield the fact patterns that only one of the programs accepts."""
    for side, other, is_new in ((old, new, False), (new, old, True)):
        for (predicate, arity), patterns in side.accepted.items():
            for types in patterns:
                if types not in other.accepted.get((predicate, arity), ()):
                    yield Changed(is_new, AtomSet(predicate, types, (None,) * arity))


# ---- proving a claim -----------------------------------------------------------------------------------------------


class NotAClaim(AuthzError):
    """The text is not an atom, or a condition, that the policy understands."""


@dataclass(frozen=True)
class StatedGoal:
    """A goal in words of a policy, as a predicate of its own: `claim(u, d) if allow(u, "read", d) and not (...)`."""

    program: Program  # with the rule of that predicate
    goal: GoalPattern
    call: Atom  # the goal; its variables are the predicate's arguments
    variables: tuple[str, ...]

    @property
    def claim(self) -> Claim:
        """Return the claim that no facts make it true."""
        return Claim(Side(self.program, self.goal), never=derived(self.program))

    def finding(self, claim: Claim) -> Finding:
        """Return what was found against the claim; the witness has the goal's atom."""
        witness = claim.finding.witness
        if witness is None:
            return claim.finding
        return replace(claim.finding, witness=replace(witness, atom=self.atom(witness.atom.args)))

    def atom(self, row: Sequence[Term]) -> Atom:
        """Return the goal's atom for a row of the predicate."""
        values = dict(zip(self.variables, row))
        args = [values[arg.name] if isinstance(arg, Var) else arg for arg in self.call.args]
        return Atom(self.call.predicate, tuple(args))


def stated(program: Program, goal: str, condition: str = "") -> StatedGoal:
    """Parse a goal such as `allow(u: User, "read", Document{"plan"})`, and a condition that holds besides."""
    head = _head_of(goal)
    params: list[str] = []
    args: list[Var | Value] = []
    for place, param in enumerate(head.params):
        match param:
            case ast.Literal(value):
                args.append(value)
            case ast.Parameter(variable, type_name):
                if type_name.text not in program.subtypes:
                    raise NotAClaim(str(Unknown("type", type_name.text, "", tuple(sorted(program.types)))))
                name = f"any_{place}" if variable.name == "_" else variable.name
                args.append(Var(name))
                params.append(f"{name}: {type_name.text}")
            case ast.Variable(name):
                name = f"any_{place}" if name == "_" else name
                args.append(Var(name))
                params.append(name)
            case _:
                raise NotAClaim("`@current_unix_time` cannot be an argument of the goal")
    name = next(each for each in map("claim_{}".format, count(1)) if each not in program.predicates)
    call = Atom(head.predicate.text, tuple(args))
    body = f"{call} and ({condition})" if condition else str(call)
    text = f"{program.source.text}\n{name}({', '.join(dict.fromkeys(params))}) if {body};\n"
    extended = _compiled(text, len(program.source.text))
    for rule in extended.rules:
        if rule.origin.start > len(program.source.text):
            for called in atoms_of(rule.body):
                if called.predicate not in extended.helpers:
                    check_predicate(program, called.predicate)
    variables = tuple(dict.fromkeys(arg.name for arg in args if isinstance(arg, Var)))
    rules = extended.rules_by_predicate.get((name, len(variables)), ())
    slots = [
        GoalSlot(frozenset().union(*(types_of(rule.head.args[i], rule.types) for rule in rules)))
        for i in range(len(variables))
    ]
    # The claim's own calls would make the policy accept more facts.
    return StatedGoal(replace(extended, accepted=program.accepted), GoalPattern(name, tuple(slots)), call, variables)


def check_words(program: Program, goal: str) -> None:
    """Raise `NotAClaim` if the goal has words that the policy does not have: "never" is true of a misspelled action."""
    if found := unknown_words_of(program, goal):
        raise NotAClaim("; ".join(found))


def unknown_words_of(program: Program, goal: str) -> list[str]:
    head = _head_of(goal)
    terms: list[tuple[str, str | None]] = []
    for param in head.params:
        match param:
            case ast.Literal(value):
                terms.append((value.type, value.id))
            case ast.Parameter(_, type_name):
                terms.append((type_name.text, None))
    return list(advice(program, head.predicate.text, terms)) if len(terms) == len(head.params) else []


def _head_of(goal: str) -> ast.Head:
    try:
        items = parse(Source(f"{goal.strip().removesuffix(';')};")).items
    except PolicyRejected as reason:
        raise NotAClaim(f"`{goal}` is not a goal: {reason.problems[0].message}. {_EXAMPLE}") from None
    match items:
        case (ast.Rule(head=head, body=None),):
            return head
    raise NotAClaim(f"`{goal}` is not a goal. {_EXAMPLE}")


_EXAMPLE = 'Write it as `allow(u: User, "read", d: Document)`.'


def _compiled(text: str, length: int) -> Program:
    try:
        return compile_text(text)
    except PolicyRejected as reason:
        problems = [problem for problem in reason.problems if problem.span.start >= length] or reason.problems
        raise NotAClaim(f"the claim is not valid: {problems[0].message}") from None


def derived(program: Program) -> frozenset[str]:
    """Return those of `allow` and `has_permission` that rules derive: stored facts of them would bypass all rules."""
    return frozenset(name for name, _ in program.rules_by_predicate) & {ALLOW, "has_permission"}


def proved(statement: StatedGoal, solver: Solver, most: int = 12) -> Finding:
    """Search for facts that make the statement's goal true; the witness has the goal's atom."""
    claim = statement.claim
    searched([claim], solver, run.current_time(), replay, most)
    return statement.finding(claim)


def checked_never(program: Program, assertions: Sequence[Invariant]) -> list[AssertionOutcome]:
    """Check the `assert_never` of a policy's tests, within a time limit for all of them together."""
    claims: dict[int, tuple[StatedGoal, Claim]] = {}
    messages: dict[int, str] = {}
    try:
        with Solver(memory=REQUEST_MEMORY, waits=True) as solver:  # publishing over HTTP checks them, too
            for place, each in enumerate(assertions):
                if solver.left <= 0:  # compiling a claim takes as long as compiling the policy
                    break
                try:
                    statement = stated(program, each.goal, each.condition)
                except AuthzError as reason:
                    messages[place] = reason.message
                else:
                    claims[place] = statement, statement.claim
            searched([claim for _, claim in claims.values()], solver, run.current_time(), replay)
    except AuthzError as reason:
        messages = dict.fromkeys(range(len(assertions)), reason.message)
    outcomes = []
    for place, each in enumerate(assertions):
        line, _ = program.source.position(each.span.start)
        outcome = AssertionOutcome(each.text, line, False, messages.get(place, ""))
        if place not in messages:
            finding = claims[place][0].finding(claims[place][1]) if place in claims else Finding(Verdict.UNKNOWN)
            outcome = _with_finding(outcome, finding, unknown_words_of(program, each.goal))
        outcomes.append(outcome)
    return outcomes


def _with_finding(outcome: AssertionOutcome, finding: Finding, unknown: Sequence[str]) -> AssertionOutcome:
    if finding.witness:
        atom, facts = fact_of_atom(finding.witness.atom), finding.witness.facts
        lines = [f"with {fact_of_atom(fact).noted}" for fact in facts] or ["with no facts"]
        message = f"expected never, found {atom.noted}"
        return replace(outcome, message=message, too_much=True, explanation=lambda _: lines)
    if finding.is_enough:
        return replace(outcome, passed=True, extent="; ".join([finding.extent, *unknown]))
    return replace(outcome, message=f"not decided within {SECONDS:g} seconds: {finding.extent}")


# ---- what would allow it -------------------------------------------------------------------------------------------

MOST_WAYS = 5


@dataclass(frozen=True)
class Way:
    """Facts to insert and to delete, after which a goal holds."""

    inserts: tuple[Atom, ...]
    deletes: tuple[Atom, ...] = ()

    def __str__(self) -> str:
        parts = [f"insert {each}" for each in self.inserts] + [f"delete {each}" for each in self.deletes]
        return "; ".join(parts)


@dataclass(frozen=True)
class Ways:
    """The smallest ways, different in kind. `is_complete` if there are no others with these ids."""

    ways: tuple[Way, ...]
    is_complete: bool
    holds: bool = False  # already


def ways(
    statement: StatedGoal, stored: Sequence[Atom], solver: Solver, most: int = MOST_WAYS, now: int | None = None
) -> Ways:
    """Search for the smallest changes of facts after which the goal holds, over the stored facts that are given."""
    now = run.current_time() if now is None else now
    found: list[Way] = []
    is_complete = False
    for ids in (1, 2):
        writer = _change_program(statement, stored, ids, now)
        for way in found:
            _block(way, writer)
        is_complete = False
        while len(found) < most:
            try:
                answer = solver.solve(writer.text, solver.left / (1 if found else 1.5))
            except OutOfLimits:
                return Ways(tuple(found), False)
            if answer["model"] is None:
                is_complete = answer["is_complete"]
                break
            atoms = atoms_in_model(answer["model"], writer)
            way = Way(atoms["a"], atoms["r"])
            _check_way(statement, stored, way, atoms["goal"][0], now)
            if not (way.inserts or way.deletes):
                return Ways((), True, holds=True)
            found.append(way)
            _block(way, writer)
    return Ways(tuple(found), is_complete)


def _change_program(statement: StatedGoal, stored: Sequence[Atom], ids: int, now: int) -> ProgramWriter:
    program, goal = statement.program, statement.goal
    part = sliced(program, [goal])
    known = [value for fact in stored for value in values_of(fact)]
    types = part.types | {value.type for value in known}
    universe = Universe.of([part], dict.fromkeys(types, ids), now, known)
    writer = ProgramWriter(universe)
    chosen = writer.chosen_goal(goal)
    writer.rules(part, "p")
    writer.chosen_facts(part, {}, derived(program), letter="a")
    writer.add(f":- {chosen}, not {atom(writer.name('p', goal.key), [f'X{i}' for i in range(len(goal.slots))])}.")
    for fact in stored:
        row = ",".join(str(universe.numbers[value]) for value in values_of(fact))
        writer.add(f"s{writer.number((fact.predicate, len(fact.args)))}({row}).")
    for key in {(goal.predicate, len(goal.slots)) for goal in part.rules if goal.slots}:
        terms = [f"X{place}" for place in range(key[1])]
        added, deleted, kept, true = (atom(writer.name(letter, key), terms) for letter in "arsf")
        writer.add(f"{{ {deleted} : {kept} }}.")
        writer.add(f":- {added}, {kept}.")
        writer.add(f"{true} :- {added}.")
        writer.add(f"{true} :- {kept}, not {deleted}.")
        writer.minimized(key, 1, "r")
    fresh = [
        universe.numbers[each]
        for name, values in universe.free.items()
        if name not in (INTEGER, BOOLEAN)
        for each in values
    ]
    for number in fresh:
        writer.add(f"fresh({number}).")
    writer.add("#minimize { 1@1,fresh,X : used(X), fresh(X) }.")
    writer.moment(later=False)
    writer.symmetry()
    return writer


def _block(way: Way, writer: ProgramWriter) -> None:
    """Exclude further changes of the same kind: the same but for the ids of actors and resources."""
    kinds = []
    for letter, facts in (("a", way.inserts), ("r", way.deletes)):
        for fact in facts:
            terms, parts = [], []
            for place, value in enumerate(values_of(fact)):
                if value.type in PRIMITIVES:
                    terms.append(str(writer.universe.numbers[value]))
                else:
                    terms.append(f"X{place}")
                    parts.append(f"{writer.domain(GoalSlot(frozenset((value.type,))))}(X{place})")
            name = writer.name(letter, (fact.predicate, len(fact.args)))
            kind = f"kind{len(writer.lines)}"
            writer.add(f"{kind} :- {', '.join([atom(name, terms), *parts])}.")
            kinds.append(kind)
    writer.add(f":- {', '.join(kinds)}.")


def _check_way(statement: StatedGoal, stored: Sequence[Atom], way: Way, chosen: Atom, now: int) -> None:
    facts = tuple(fact for fact in (*stored, *way.inserts) if fact not in way.deletes)
    asked = Atom(statement.goal.predicate, chosen.args)
    if not holds(statement.program, facts, asked, now):
        raise EngineDisagrees(Witness(facts, asked, now), True)


# ---- stored facts around a goal -----------------------------------------------------------------------------------

MOST_STORED = 1_000
_OF_EACH = 40  # facts that mention a value, for each place in facts


def stored_around(session: Snapshot, statement: StatedGoal) -> tuple[list[Atom], bool]:
    """Return stored facts that can matter to the goal and are connected with its values, and whether these are all."""
    part = sliced(statement.program, [statement.goal])
    keys = {goal.key for goal in part.rules}
    numbers = {
        signature: number
        for signature, number in session.numbers.items()
        if (signature.predicate, len(signature.types)) in keys
        and statement.program.accepts(signature.predicate, signature.types)
    }
    found: dict[Atom, None] = {}
    waiting = dict.fromkeys(sorted(part.values))
    is_whole = True
    for value in waiting_values(waiting):
        about = list(facts_about(numbers, value, _OF_EACH + 1))
        is_whole = is_whole and len(about) <= _OF_EACH
        for fact in about:
            entities = [arg for arg in fact.args if arg.type not in PRIMITIVES]
            if (value.type in PRIMITIVES and entities) or session.place_of(fact) is None:
                continue
            found[Atom(fact.predicate, fact.args)] = None
            waiting.update(dict.fromkeys(entities))
        if len(found) > MOST_STORED:
            return list(found)[:MOST_STORED], False
    return list(found), is_whole


def waiting_values(waiting: Mapping[Value, None]) -> Iterator[Value]:
    """Yield the values, also those that are added meanwhile."""
    done: set[Value] = set()
    while left := [value for value in waiting if value not in done]:
        for value in left:
            done.add(value)
            yield value


# ---- What no fact can ever make matter: rules without effect, permissions that nobody can have ----------------------
# Facts of `allow` and of `has_permission` do not count where rules derive them: they would bypass the rules.

_IDS = 2  # of each type: more are searched only to compare policies
DeclaredNames = dict[tuple[str, str, str], Span]  # by block, keyword and name


def without_effect(program: Program, solver: Solver) -> tuple[list[Problem], bool]:
    """Return a notice for each part of the policy that has no effect, and whether there was time to check all parts."""
    names = _declared(program)
    found = [*_unused_roles(program, names), *_permissions(program, names, solver), *_idle_rules(program, solver)]
    return sorted(found, key=lambda problem: problem.span.start), solver.left > 0


def _declared(program: Program) -> DeclaredNames:
    found: DeclaredNames = {}
    for block in parse(program.source).items:
        if isinstance(block, ast.Block) and block.name is not None:
            for item in block.items:
                if isinstance(item, ast.NameList):
                    for name in item.names:
                        found[block.name.text, item.keyword.text, name.text] = name.span
    return found


def _notice(span: Span, message: str, finding: Finding | None = None) -> Problem:
    extent = "proved" if finding is None else finding.extent
    return Problem(f"{message} ({extent})", span, severity="notice")


# ---- roles ---------------------------------------------------------------------------------------------------------


def _unused_roles(program: Program, names: DeclaredNames) -> Iterator[Problem]:
    """Yield the roles that no rule on which a decision depends asks for."""
    everything = program.subtypes[ACTOR] | program.subtypes[RESOURCE]
    goals = [
        goal_of(ALLOW, [everything, frozenset((STRING,)), everything][:arity])
        for name, arity in program.rules_by_predicate
        if name == ALLOW and arity <= 3
    ]
    asked = [goal for goal in sliced(program, goals).rules if goal.predicate == "has_role" and len(goal.slots) == 3]
    for (block, keyword, name), span in names.items():
        if keyword == "roles" and program.knows(block):
            wanted = goal_of("has_role", [everything, Value(STRING, name), frozenset((block,))])
            if not any(all(one.meet(other) for one, other in zip(goal.slots, wanted.slots)) for goal in asked):
                yield _notice(span, f'the role "{name}" grants nothing')


# ---- permissions ---------------------------------------------------------------------------------------------------


def _permissions(program: Program, names: DeclaredNames, solver: Solver) -> Iterator[Problem]:
    actors = program.subtypes[ACTOR]
    by_type: dict[str, dict[str, Claim]] = {}
    for block, keyword, name in names:
        if keyword == "permissions" and program.knows(block):
            by_type.setdefault(block, {})[name] = _claim(program, actors, name, block)
    claims = [claim for each in by_type.values() for claim in each.values()]
    searched(claims, solver, run.current_time(), replay, _IDS)
    for block, each in by_type.items():
        for name, claim in each.items():
            if claim.finding.is_enough:
                yield _notice(names[block, "permissions", name], f'nobody can have "{name}"', claim.finding)
        yield from _equal_permissions(program, actors, block, each, names, solver)


def _claim(program: Program, actors: Types, name: str, block: str, other: str | None = None) -> Claim:
    sides = [
        Side(program, permission_goal(Permission(3, each, block), actors, program)) for each in (name, other) if each
    ]
    return Claim(sides[0], sides[1] if other else None, never=derived(program))


def _equal_permissions(
    program: Program, actors: Types, block: str, claims: dict[str, Claim], names: DeclaredNames, solver: Solver
) -> Iterator[Problem]:
    """Yield the permissions that everybody has who has another one: those that no facts tell apart."""
    known = {name: claim.finding.witness for name, claim in claims.items() if claim.finding.witness}
    traits: dict[tuple[bool, ...], list[str]] = {}
    for name in known:
        held = tuple(
            holds(
                program, each.facts, Atom(ALLOW, (each.atom.args[0], Value(STRING, name), each.atom.args[2])), each.now
            )
            for each in known.values()
        )
        traits.setdefault(held, []).append(name)
    for first, *others in traits.values():
        for name in others:
            pair = [_claim(program, actors, *each) for each in ((first, block, name), (name, block, first))]
            searched(pair, solver, run.current_time(), replay, _IDS)
            if all(claim.finding.is_enough for claim in pair):
                weakest = min((claim.finding for claim in pair), key=lambda each: each.verdict == Verdict.PROVED)
                yield _notice(names[block, "permissions", name], f'"{name}" is the same as "{first}"', weakest)


# ---- rules ---------------------------------------------------------------------------------------------------------


def _idle_rules(program: Program, solver: Solver) -> Iterator[Problem]:
    """Yield the rules without which every decision would be the same."""
    for origin in program.written:
        without = replace(program, rules=tuple(rule for rule in program.rules if rule.origin != origin))
        claims = [
            Claim(*sides, excluded, derived(program))
            for goal, excluded in differing(program, without).values()
            for sides in ((Side(program, goal), Side(without, goal)), (Side(without, goal), Side(program, goal)))
        ]
        for claim in claims:
            searched([claim], solver, run.current_time(), replay, _IDS)
            if not claim.finding.is_enough:
                break
        else:
            if claims:
                weakest = min((claim.finding for claim in claims), key=lambda each: each.verdict == Verdict.PROVED)
                yield _notice(origin, "this rule changes no decision", weakest)
