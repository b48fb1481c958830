"""Reject rules with unbound variables, and recursion through `not`."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from policy.language import ast
from policy.language.source import Span, shown
from policy.rules.components import Components
from policy.rules.declarations import Mask, Problems, Vocabulary, bits_of, simple_formulas, typed_in, variables_of
from policy.rules.flatten import UNLIMITED, FlatRule, PredicateKey, is_made_here, key_of, uses_of
from policy.rules.program import Atom, Compare, Literal, Member, Not, Now, Term, Var
from policy.rules.types import Typing
from policy.values import INTEGER, Value

# ---- Reject rules with unbound variables, and warn about variables that are probably mistakes ---------------------
#     p(x) if q(x) and y < 3;                 nothing gives y a value
#     p(x) if q(x) and not r(y) and not s(y);  which y?
#
# A head variable may stay unbound: the query gives its value, or the answer is "every value". A variable that occurs
# only in one `not` means "there is none". Every other variable of a comparison or a `not` must be bound by a call, by a
# list, or by an `or` that binds it in each alternative.

_IMPLICIT = {"actor", "resource", "role", "permission"}  # in shorthand


def check_safety(policy: ast.Policy, rules: list[FlatRule], known: Vocabulary, problems: Problems) -> None:
    modes = _Modes.of(rules)
    for rule in rules:
        _check_bound(rule, modes, problems)
    for item in policy.items:
        if isinstance(item, ast.Rule):
            _check_names(item, known, problems)
        elif isinstance(item, ast.Block):
            for short in item.items:
                if isinstance(short, ast.Shorthand):
                    _warn_of_singles(_written(short.body), _IMPLICIT, problems)


# ---- what binds a variable ---------------------------------------------------------------------------


@dataclass(slots=True)
class _Modes:
    """For each helper predicate, the positions that every alternative binds, and those that some alternative needs."""

    binds: dict[str, set[int]]
    needs: dict[str, set[int]]

    @classmethod
    def of(cls, rules: list[FlatRule]) -> _Modes:
        modes = cls({}, defaultdict(set))
        for rule in reversed(rules):  # a helper's rules follow their caller
            if rule.caller is None:
                continue
            bound, needed = modes.bound(rule), modes.needed(rule)
            positions = {i for i, arg in enumerate(rule.head.args) if arg in bound or not isinstance(arg, Var)}
            name = rule.head.predicate
            if name.startswith("not#"):  # binds nothing, even if called without `not`, for a `not not`
                modes.binds[name], modes.needs[name] = set(), set(range(len(rule.head.args)))
                continue
            modes.binds[name] = modes.binds.get(name, positions) & positions
            modes.needs[name] |= {i for i, arg in enumerate(rule.head.args) if arg in needed and arg not in bound}
        return modes

    def bound(self, rule: FlatRule) -> set[Term]:
        found: set[Term] = set()
        for literal in rule.body:
            match literal:
                case Atom(predicate, args):
                    binding = self.binds[predicate] if is_made_here(predicate) else range(len(args))
                    found.update(args[i] for i in binding)
                case Member(variable, _):
                    found.add(variable)
        return found

    def needed(self, rule: FlatRule) -> dict[Var, tuple[Literal | None, Span]]:
        """Return the variables that must be bound, each with the literal that needs it; None: a `not ... matches`."""
        uses = uses_of(rule)
        outside = {*rule.head.args, *rule.bounds, *rule.limits}
        found: dict[Var, tuple[Literal | None, Span]] = {}
        for literal, span in zip(rule.body, rule.places, strict=True):
            for variable in self._needed_by(literal):
                is_inner = isinstance(literal, Not) and uses[variable] == 1 and variable not in outside
                if isinstance(variable, Var) and not is_inner:
                    found.setdefault(variable, (literal, span))
        for variable, (mask, span) in rule.limits.items():
            if mask != UNLIMITED:
                found.setdefault(variable, (None, span))
        return found

    def _needed_by(self, literal: Literal) -> Iterable[Term]:
        match literal:
            case Compare(_, left, right):
                return (left, right)
            case Not(Atom(_, args)):
                return args
            case Atom(predicate, args) if is_made_here(predicate):
                return [args[i] for i in self.needs[predicate]]
        return ()


def _check_bound(rule: FlatRule, modes: _Modes, problems: Problems) -> None:
    if not rule.limits and all(isinstance(lit, Atom) and not is_made_here(lit.predicate) for lit in rule.body):
        return
    bound = modes.bound(rule)
    for variable, (literal, span) in modes.needed(rule).items():
        if variable not in bound and variable not in rule.head.args:
            _refuse_unbound(variable, literal, span, rule, problems)


def _refuse_unbound(variable: Var, literal: Literal | None, span: Span, rule: FlatRule, problems: Problems) -> None:
    name = "`_`" if "#" in variable.name else shown(variable.name)
    hint = f"pass {name} to a predicate outside of `not`"
    calls = [other for other in rule.body if isinstance(other, Atom) and variable in other.args]
    if any(call.predicate.startswith("or#") for call in calls):
        message = f"unbound variable {name} in an alternative of the `or`"
        hint = f"pass {name} to a predicate in each alternative"
    elif not isinstance(literal, Compare):
        message = f"unbound variable {name} in a `not`"
        hint += f"; or use {name} only inside one `not`, which then means that there is none"
    else:
        message = f"unbound variable {name} in a comparison"
    problems.error(span, message, hint)


# ---- variables that are probably mistakes -----------------------------------------------------------------


def _check_names(rule: ast.Rule, known: Vocabulary, problems: Problems) -> None:
    params = [p.variable if isinstance(p, ast.Parameter) else p for p in rule.head.params]
    in_head = [param for param in params if isinstance(param, ast.Variable)]
    written = [*in_head, *_written(rule.body)]
    _warn_of_singles(written, (), problems, frozenset(variable.span for variable in in_head))
    first = {variable.name: variable for variable in reversed(written)}
    typed = {name for name, _ in typed_in(rule)}  # the author knows these from a type of the same name
    for name, variable in first.items():
        if name in known.types and name not in typed:
            hint = f"for a variable of that type, write `{name.lower()}: {name}` or `_: {name}`"
            problems.warn(variable.span, f"{shown(name)} is a type, but is used as a variable here", hint)


def _written(formula: ast.Formula | None) -> Iterator[ast.Variable]:
    for simple in simple_formulas(formula):
        yield from variables_of(simple)


def _warn_of_singles(
    variables: Iterable[ast.Variable], known: Iterable[str], problems: Problems, heads: frozenset[Span] = frozenset()
) -> None:
    variables = list(variables)
    uses = Counter(variable.name for variable in variables)
    for variable in variables:
        name = variable.name
        if uses[name] > 1 or name.startswith("_") or name in known:
            continue
        meaning = "so it matches every value" if variable.span in heads else "so it matches any value"
        problems.warn(
            variable.span, f"{shown(name)} is used only once, {meaning}", f"if this is intended, write `_{name}`"
        )


# ---- Reject recursion through `not` -------------------------------------------------------------------------------
#     "reader" if "member" and not "banned";      fine: the role "banned" does not depend on "reader"
#     "banned" if not "reader";                   rejected: each would be the absence of the other
#
# The test is finer than stratification by predicate. Its nodes are *questions*: a predicate with one constant or a set
# of types for each argument. A question has edges to the calls in the body of every rule whose head unifies with it,
# and the constants and types of head variables are propagated to these calls. So rules about different roles, or
# different types of resource, may negate each other freely. Questions are explored only for predicates that are negated
# recursively in the coarse graph, whose nodes are predicates; if that takes more than `MAX_STEPS`, the coarse graph
# decides.

MAX_STEPS = 100_000  # matching a rule against a question is one step
MAX_CHAIN = 6  # steps of a cycle that a message lists
TypedSlot = Value | Mask
TypedQuestion = tuple[str, tuple[TypedSlot, ...]]
AnyNode = TypeVar("AnyNode", bound=PredicateKey | TypedQuestion)


@dataclass(frozen=True, slots=True)
class Edge(Generic[AnyNode]):
    """An edge to a question that must be answered first; in the coarse graph, to a predicate."""

    target: AnyNode
    is_negated: bool
    span: Span


DependencyGraph = Mapping[AnyNode, list[Edge[AnyNode]]]


def check_strata(rules: list[FlatRule], typings: list[Typing], known: Vocabulary, problems: Problems) -> None:
    if not any(isinstance(literal, Not) for rule in rules for literal in rule.body):
        return
    coarse = _coarse_graph(rules)
    suspects = {key for group in _negated_groups(coarse) for key in group}
    if not suspects:
        return
    inside = [(rule, typing) for rule, typing in zip(rules, typings, strict=True) if key_of(rule.head) in suspects]
    graph = _question_graph(inside, suspects, known)
    if graph is not None:
        _refuse_cycles(graph, known, problems, "break the cycle: remove the `not` or one of the conditions")
        return
    hint = "too many rules to analyze in detail; negate a separate predicate"
    among_suspects = {
        key: [edge for edge in edges if edge.target in suspects] for key, edges in coarse.items() if key in suspects
    }
    _refuse_cycles(among_suspects, known, problems, hint)


def _refuse_cycles(graph: DependencyGraph[AnyNode], known: Vocabulary, problems: Problems, hint: str) -> None:
    for group in _negated_groups(graph):
        _refuse(group, graph, known, problems, hint)


def _coarse_graph(rules: list[FlatRule]) -> DependencyGraph[PredicateKey]:
    graph: dict[PredicateKey, dict[Edge[PredicateKey], None]] = {}
    for rule in rules:
        edges = graph.setdefault(key_of(rule.head), {})
        for atom, is_negated, span in _calls(rule):
            edges.setdefault(Edge(key_of(atom), is_negated, span))
    return {key: list(edges) for key, edges in graph.items()}


def _calls(rule: FlatRule) -> Iterable[tuple[Atom, bool, Span]]:
    for literal, span in zip(rule.body, rule.places, strict=True):
        if isinstance(literal, Atom):
            yield literal, False, span
        elif isinstance(literal, Not):
            yield literal.atom, True, span


# ---- questions -------------------------------------------------------------------------------------------


def _question_graph(
    rules: list[tuple[FlatRule, Typing]], suspects: set[PredicateKey], known: Vocabulary
) -> DependencyGraph[TypedQuestion] | None:
    """Return the graph of all questions reachable from the most general ones about the suspects; None if too large."""
    index = _Index(rules, known)
    waiting: list[TypedQuestion] = [(name, (known.everything,) * arity) for name, arity in sorted(suspects)]
    graph: dict[TypedQuestion, list[Edge[TypedQuestion]]] = {}
    steps = 0
    while waiting:
        question = waiting.pop()
        if question in graph:
            continue
        candidates = index.candidates(question)
        steps += 1 + len(candidates)
        if steps > MAX_STEPS:
            return None
        edges = graph[question] = list(dict.fromkeys(_edges(question[1], candidates, suspects, known)))
        waiting += [edge.target for edge in edges if edge.target not in graph]
    return graph


def _edges(
    slots: tuple[TypedSlot, ...],
    candidates: list[tuple[FlatRule, Typing]],
    suspects: set[PredicateKey],
    known: Vocabulary,
) -> Iterable[Edge[TypedQuestion]]:
    for rule, typing in candidates:
        slot_of = _unified(rule.head.args, slots, typing, known)
        if slot_of is None:
            continue
        for atom, is_negated, span in _calls(rule):
            if key_of(atom) in suspects:
                asked = tuple([_slot(arg, slot_of, typing, known) for arg in atom.args])
                if all(asked):
                    yield Edge((atom.predicate, asked), is_negated, span)


def _slot(term: Term, slot_of: Mapping[Var, TypedSlot], typing: Typing, known: Vocabulary) -> TypedSlot:
    match term:
        case Value():
            return term
        case Now():
            return known.bits[INTEGER]
    return slot_of.get(term, typing[term])


def _unified(
    head: tuple[Term, ...], slots: tuple[TypedSlot, ...], typing: Typing, known: Vocabulary
) -> dict[Var, TypedSlot] | None:
    """Unify a rule's head with a question: return the slots of its variables, or None if they do not unify."""
    found: dict[Var, TypedSlot] = {}
    for term, slot in zip(head, slots, strict=True):
        both = _meet(_slot(term, found, typing, known), slot, known)
        if not both:
            return None
        if isinstance(term, Var):
            found[term] = both
    return found


def _meet(a: TypedSlot, b: TypedSlot, known: Vocabulary) -> TypedSlot | None:
    if isinstance(a, Value):
        if isinstance(b, Value):
            return a if a == b else None
        return a if known.bits.get(a.type, 0) & b else None
    if isinstance(b, Value):
        return b if known.bits.get(b.type, 0) & a else None
    return a & b


class _Index:
    """Finds the rules whose head may unify with a question, by its most selective argument."""

    def __init__(self, rules: list[tuple[FlatRule, Typing]], known: Vocabulary):
        self.rules, self.known = rules, known
        self.by_key: dict[PredicateKey, list[int]] = defaultdict(list)
        # By the head's argument: a value, and its type; or each type of a variable.
        self.by_value: dict[tuple[PredicateKey, int, TypedSlot], list[int]] = defaultdict(list)
        self.by_variable: dict[tuple[PredicateKey, int, Mask], list[int]] = defaultdict(list)
        for number, (rule, typing) in enumerate(rules):
            self._add(number, key_of(rule.head), rule.head.args, typing)

    def _add(self, number: int, key: PredicateKey, head: tuple[Term, ...], typing: Typing) -> None:
        self.by_key[key].append(number)
        for position, term in enumerate(head):
            if isinstance(term, Value):
                self.by_value[key, position, term].append(number)
                self.by_value[key, position, self.known.bits.get(term.type, 0)].append(number)
            else:
                for bit in bits_of(self.known.bits[INTEGER] if isinstance(term, Now) else typing[term]):
                    self.by_variable[key, position, bit].append(number)

    def candidates(self, question: TypedQuestion) -> list[tuple[FlatRule, Typing]]:
        name, slots = question
        key = (name, len(slots))
        best = self.by_key[key]
        for position, slot in enumerate(slots):
            bit = self.known.bits.get(slot.type, 0) if isinstance(slot, Value) else slot
            if bit.bit_count() <= 1:  # several types are not selective
                found = self.by_value.get((key, position, slot), []) + self.by_variable.get((key, position, bit), [])
                best = min(best, found, key=len)
        return [self.rules[number] for number in best]


# ---- cycles through `not` -------------------------------------------------------------------------------------


def _negated_groups(graph: DependencyGraph[AnyNode]) -> list[list[AnyNode]]:
    """Return the strongly connected components of the graph that contain a negated edge."""
    components = Components(lambda node: [edge.target for edge in graph.get(node, ())])
    groups: dict[int, list[AnyNode]] = defaultdict(list)
    for node in graph:
        if (number := components.number(node)) is not None:
            groups[number].append(node)
    return [
        group for number, group in groups.items()
        if any(edge.is_negated and components.number(edge.target) == number for node in group for edge in graph[node])
    ]  # fmt: skip


def _refuse(
    group: list[AnyNode], graph: DependencyGraph[AnyNode], known: Vocabulary, problems: Problems, hint: str
) -> None:
    inside = set(group)
    negated = [(node, edge) for node in group for edge in graph[node] if edge.is_negated and edge.target in inside]
    node, edge = min(negated, key=lambda pair: (pair[1].span.start, str(pair)))
    path = [*_path(edge.target, node, inside, graph), edge.target]
    words = [_words(asked, known) for asked in path if not is_made_here(asked[0])]
    words = [word for word, before in zip(words, [None, *words], strict=False) if word != before]
    if len(words) > MAX_CHAIN:
        words[MAX_CHAIN - 1 : -1] = [f"{len(words) - MAX_CHAIN} more"]
    chain = " depends on ".join(words) if len(words) > 1 else f"{words[0]} depends on itself"
    problems.error(edge.span, f"recursion through `not`: {chain}", hint)


def _path(start: AnyNode, end: AnyNode, inside: set[AnyNode], graph: DependencyGraph[AnyNode]) -> list[AnyNode]:
    """Return the shortest path within the group, both ends included."""
    came_from: dict[AnyNode, AnyNode | None] = {start: None}
    queue = deque([start])
    while end not in came_from:
        node = queue.popleft()
        for edge in graph[node]:
            if edge.target in inside and edge.target not in came_from:
                came_from[edge.target] = node
                queue.append(edge.target)
    path = [end]
    while (before := came_from[path[-1]]) is not None:
        path.append(before)
    return path[::-1]


def _words(node: PredicateKey | TypedQuestion, known: Vocabulary) -> str:
    """Format a question for a message: `has_role(_, "banned", Repo)`."""
    name, slots = node
    if isinstance(slots, int):
        return shown(name)
    return shown(f"{name}({', '.join(_slot_words(slot, known) for slot in slots)})")


def _slot_words(slot: TypedSlot, known: Vocabulary) -> str:
    if isinstance(slot, Value):
        return str(slot)
    if slot == known.everything:
        return "_"
    return next((name for name, mask in known.masks.items() if mask == slot), "_")
