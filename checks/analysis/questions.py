"""Questions about all facts: does a policy grant more than another, can a claim fail, how can a denial be lifted?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from checks.analysis.search import Claim, Finding, Side, Solver, Verdict, Witness, searched
from checks.analysis.slices import Goal, Slot, slot_of, terms_of
from checks.asking import run
from checks.asking.question import Asked, Question
from checks.asking.snapshot import FactsAlone, fact_of_atom
from policy.errors import AuthzError
from policy.rules.changes import AtomSet, Changed, changed_rules, reached
from policy.rules.program import Atom, Program, Types, Value
from policy.values import STRING

ALLOW = "allow"
_ACTION, _RESOURCE = 1, 2  # places in `allow`
ENOUGH = 2  # ids of each type that a comparison must reach to count as one


class EngineDisagrees(AuthzError):
    """The engine answers otherwise than the solver: one of them is wrong."""

    def __init__(self, witness: Witness, expected: bool):
        facts = " ".join(f"{fact};" for fact in witness.facts)
        super().__init__(
            f"internal error: the solver finds that {witness.atom} is {'true' if expected else 'false'} with the facts "
            f"{{ {facts} }}, but the engine does not. Please report this with the policy"
        )


def holds(program: Program, facts: Iterable[Atom], asked: Atom, now: int | None = None) -> bool:
    """Ask the engine whether an atom holds over these facts alone."""
    accepted = [fact for fact in facts if program.accepts(fact.predicate, tuple(arg.type for arg in values_of(fact)))]
    signatures = frozenset(fact_of_atom(fact).signature for fact in accepted)
    session = FactsAlone.of_signatures(program, signatures).over(accepted)
    if now is not None:
        session = replace(session, now=now)
    variables = {f"argument{place}": Asked(arg.type, (arg.id,)) for place, arg in enumerate(values_of(asked))}
    return session.holds(Question(((asked.predicate, tuple(variables)),), variables))


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
class Comparison:
    """What may differ between two policies; every other permission is the same, since no rule of it differs."""

    differences: tuple[Difference, ...] = ()

    def grants_more(self, allowed: Iterable[str] = ()) -> list[Difference]:
        kept = set(allowed)
        return [each for each in self.differences if each.more.verdict == Verdict.FOUND and str(each.permission) not in kept]

    def undecided(self, allowed: Iterable[str] = ()) -> list[Difference]:
        """Return those of which it is not known whether they grant more."""
        kept = set(allowed)
        return [
            each
            for each in self.differences
            if (each.more.verdict == Verdict.UNKNOWN or (each.more.verdict == Verdict.NONE and each.more.ids < ENOUGH))
            and str(each.permission) not in kept
        ]


def compared(old: Program, new: Program, solver: Solver, most: int = 12) -> Comparison:
    """Compare what two policies can allow, by permission."""
    claims: dict[Permission, tuple[Claim, Claim]] = {}
    for permission, goals in differing(old, new).items():
        goal, without = goals
        sides = Side(old, goal), Side(new, goal)
        if same_slices(*sides):
            continue
        claims[permission] = (Claim(sides[1], sides[0], without), Claim(sides[0], sides[1], without))
    both = [claim for pair in claims.values() for claim in pair]
    searched(both, solver, run.current_time(), replay, most)
    return Comparison(tuple(Difference(name, more.finding, less.finding) for name, (more, less) in claims.items()))


def differing(old: Program, new: Program) -> dict[Permission, tuple[Goal, dict[int, frozenset[Value]]]]:
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
        found[permission] = _goal(permission, types, old, new), _without(permission, known)
    return found


def _actions(atoms: AtomSet, known: set[str]) -> list[str | None]:
    if len(atoms.types) <= _ACTION:
        return [None]
    value = atoms.values[_ACTION]
    if value is not None:
        return [value.id] if value.type == STRING else []
    return [*sorted(known), None] if STRING in atoms.types[_ACTION] else []


def _goal(permission: Permission, actors: Types, old: Program, new: Program) -> Goal:
    action = Slot(frozenset((STRING,)))
    if permission.action is not None:
        action = slot_of([Value(STRING, permission.action)]) or action
    slots = [Slot(actors), action]
    if permission.resource is not None:
        slots.append(Slot(frozenset((permission.resource,))))
    everything = frozenset().union(*(types for program in (old, new) for types in program.subtypes.values()))
    slots += [Slot(everything)] * (permission.arity - len(slots))
    return Goal(ALLOW, tuple(slots[: permission.arity]))


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


def same_slices(one: Side, other: Side) -> bool:
    """Return whether the same rules decide both goals, and read the same facts."""
    return _signs(one) == _signs(other)


def _signs(side: Side) -> set[object]:
    part, names = side.slice, _Canonical(side)
    found: set[object] = set()
    for goal, rules in part.rules.items():
        if goal.predicate not in part.program.helpers:
            found.add((goal, frozenset(goal.meet(part.program.accepted.get(goal.key, ())))))
            found.update((goal, names.text(rule)) for rule in rules)
    return found


@dataclass
class _Canonical:
    """Writes rules so that neither names of variables nor those of helper predicates matter."""

    side: Side
    known: dict[Goal, str] = field(default_factory=dict)

    def text(self, rule: object) -> str:
        names: dict[object, str] = {}

        def term(each: object) -> str:
            return str(each) if not hasattr(each, "name") else names.setdefault(each, f"v{len(names)}")

        def atom(each: Atom, called: Goal | None) -> str:
            name = each.predicate
            if called is not None and name in self.side.program.helpers:
                name = self.helper(called)
            return f"{name}({', '.join(map(term, each.args))})"

        parts = [f"({', '.join(map(term, rule.head.args))})"]  # type: ignore[attr-defined]
        for literal, called in zip(rule.body, rule.calls):  # type: ignore[attr-defined]
            inner = getattr(literal, "atom", literal)
            if isinstance(inner, Atom):
                parts.append(f"{'' if inner is literal else 'not '}{atom(inner, called)}")
            else:
                parts.append(f"{literal.operator} {', '.join(map(term, terms_of(literal)))}")
        slots = [f"{names.get(name)}: {_shown(slot)}" for name, slot in rule.slots.items()]  # type: ignore[attr-defined]
        return " and ".join([*parts, *sorted(slots)])

    def helper(self, goal: Goal) -> str:
        if goal not in self.known:
            self.known[goal] = "?"
            self.known[goal] = f"({' or '.join(sorted(map(self.text, self.side.slice.rules[goal])))})"
        return self.known[goal]


def _shown(slot: Slot) -> str:
    return f"{sorted(slot.types)} {sorted(map(str, slot.values)) if slot.values is not None else ''}"
