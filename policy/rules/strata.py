"""Refuses recursion through `not`.

    "reader" if "member" and not "banned";      fine: the role "banned" does not ask for "reader"
    "banned" if not "reader";                   refused: each would be the absence of the other

The test is finer than stratification by predicate. Its nodes are *questions*: a predicate with one constant or a set of
types for each argument. A question leads to the calls in the body of every rule whose head fits it, and the constants
and types of head variables are passed on to these calls. So rules about different roles, or different types of
resource, may negate each other freely. Questions are followed only for predicates that are negated recursively in the
coarse graph, whose nodes are predicates; if that takes more than `MAX_STEPS`, the coarse graph decides.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from policy.language.notes import shown
from policy.language.source import Span
from policy.rules.components import Components
from policy.rules.declarations import Mask, Vocabulary, bits_of
from policy.rules.flat import FlatRule, Key, is_made_here, key_of
from policy.rules.narrowing import Typing
from policy.rules.problems import Problems
from policy.rules.program import Atom, Not, Now, Term, Var
from policy.values import INTEGER, Value

MAX_STEPS = 100_000  # a rule held against a question is one
MAX_CHAIN = 6  # steps of a cycle that a message spells out
Slot = Value | Mask
Question = tuple[str, tuple[Slot, ...]]
Node = TypeVar("Node", bound=Key | Question)


@dataclass(frozen=True, slots=True)
class Edge(Generic[Node]):
    """An edge to a question that must be answered first; in the coarse graph, to a predicate."""

    target: Node
    is_negated: bool
    span: Span


Graph = Mapping[Node, list[Edge[Node]]]


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
        _refuse_cycles(graph, known, problems, "nothing may depend on what negates it")
        return
    hint = "there are too many rules to tell their questions apart; negate a predicate of its own"
    among_suspects = {
        key: [edge for edge in edges if edge.target in suspects] for key, edges in coarse.items() if key in suspects
    }
    _refuse_cycles(among_suspects, known, problems, hint)


def _refuse_cycles(graph: Graph[Node], known: Vocabulary, problems: Problems, hint: str) -> None:
    for group in _negated_groups(graph):
        _refuse(group, graph, known, problems, hint)


def _coarse_graph(rules: list[FlatRule]) -> Graph[Key]:
    graph: dict[Key, dict[Edge[Key], None]] = {}
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
    rules: list[tuple[FlatRule, Typing]], suspects: set[Key], known: Vocabulary
) -> Graph[Question] | None:
    """Return the graph of all questions reachable from the most general ones about the suspects; None if too large."""
    index = _Index(rules, known)
    waiting: list[Question] = [(name, (known.everything,) * arity) for name, arity in sorted(suspects)]
    graph: dict[Question, list[Edge[Question]]] = {}
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
    slots: tuple[Slot, ...], candidates: list[tuple[FlatRule, Typing]], suspects: set[Key], known: Vocabulary
) -> Iterable[Edge[Question]]:
    for rule, typing in candidates:
        slot_of = _unified(rule.head.args, slots, typing, known)
        if slot_of is None:
            continue
        for atom, is_negated, span in _calls(rule):
            if key_of(atom) in suspects:
                asked = tuple([_slot(arg, slot_of, typing, known) for arg in atom.args])
                if all(asked):
                    yield Edge((atom.predicate, asked), is_negated, span)


def _slot(term: Term, slot_of: Mapping[Var, Slot], typing: Typing, known: Vocabulary) -> Slot:
    match term:
        case Value():
            return term
        case Now():
            return known.bits[INTEGER]
    return slot_of.get(term, typing[term])


def _unified(
    head: tuple[Term, ...], slots: tuple[Slot, ...], typing: Typing, known: Vocabulary
) -> dict[Var, Slot] | None:
    """Unify a rule's head with a question: return what its variables become, or None if the head does not fit."""
    found: dict[Var, Slot] = {}
    for term, slot in zip(head, slots, strict=True):
        both = _meet(_slot(term, found, typing, known), slot, known)
        if not both:
            return None
        if isinstance(term, Var):
            found[term] = both
    return found


def _meet(a: Slot, b: Slot, known: Vocabulary) -> Slot | None:
    if isinstance(a, Value):
        if isinstance(b, Value):
            return a if a == b else None
        return a if known.bits.get(a.type, 0) & b else None
    if isinstance(b, Value):
        return b if known.bits.get(b.type, 0) & a else None
    return a & b


class _Index:
    """Finds the rules whose head may fit a question, by its most telling argument."""

    def __init__(self, rules: list[tuple[FlatRule, Typing]], known: Vocabulary):
        self.rules, self.known = rules, known
        self.by_key: dict[Key, list[int]] = defaultdict(list)
        self.by_value: dict[tuple[Key, int, Value], list[int]] = defaultdict(list)  # the head has that value there
        self.by_type: dict[tuple[Key, int, Mask], list[int]] = defaultdict(list)  # any value of that type
        self.by_variable: dict[tuple[Key, int, Mask], list[int]] = defaultdict(list)  # a variable of that type
        for number, (rule, typing) in enumerate(rules):
            self._add(number, key_of(rule.head), rule.head.args, typing)

    def _add(self, number: int, key: Key, head: tuple[Term, ...], typing: Typing) -> None:
        self.by_key[key].append(number)
        for position, term in enumerate(head):
            if isinstance(term, Value):
                self.by_value[key, position, term].append(number)
                self.by_type[key, position, self.known.bits.get(term.type, 0)].append(number)
            else:
                for bit in bits_of(self.known.bits[INTEGER] if isinstance(term, Now) else typing[term]):
                    self.by_variable[key, position, bit].append(number)

    def candidates(self, question: Question) -> list[tuple[FlatRule, Typing]]:
        name, slots = question
        key = (name, len(slots))
        best = self.by_key[key]
        for position, slot in enumerate(slots):
            if isinstance(slot, Value):
                bit = self.known.bits.get(slot.type, 0)
                found = self.by_value.get((key, position, slot), []) + self.by_variable.get((key, position, bit), [])
            elif slot.bit_count() == 1:
                found = self.by_variable.get((key, position, slot), []) + self.by_type.get((key, position, slot), [])
            else:
                continue  # several types: not telling
            best = min(best, found, key=len)
        return [self.rules[number] for number in best]


# ---- cycles through `not` -------------------------------------------------------------------------------------


def _negated_groups(graph: Graph[Node]) -> list[list[Node]]:
    """Return the strongly connected parts of the graph that have a negated edge inside."""
    components = Components(lambda node: [edge.target for edge in graph.get(node, ())])
    groups: dict[int, list[Node]] = defaultdict(list)
    for node in graph:
        if (number := components.number(node)) is not None:
            groups[number].append(node)
    return [
        group for number, group in groups.items()
        if any(edge.is_negated and components.number(edge.target) == number for node in group for edge in graph[node])
    ]  # fmt: skip


def _refuse(group: list[Node], graph: Graph[Node], known: Vocabulary, problems: Problems, hint: str) -> None:
    inside = set(group)
    negated = [(node, edge) for node in group for edge in graph[node] if edge.is_negated and edge.target in inside]
    node, edge = min(negated, key=lambda pair: (pair[1].span.start, str(pair)))
    path = [*_path(edge.target, node, inside, graph), edge.target]
    words = [_words(asked, known) for asked in path if not is_made_here(asked[0])]
    words = [word for word, before in zip(words, [None, *words], strict=False) if word != before]
    if len(words) > MAX_CHAIN:
        words[MAX_CHAIN - 1 : -1] = [f"{len(words) - MAX_CHAIN} more"]
    chain = " asks for ".join(words) if len(words) > 1 else f"{words[0]} asks for itself"
    problems.error(edge.span, f"cannot negate recursively: {chain}", hint)


def _path(start: Node, end: Node, inside: set[Node], graph: Graph[Node]) -> list[Node]:
    """Return the shortest path along edges inside of the group, both ends included."""
    came_from: dict[Node, Node | None] = {start: None}
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


def _words(node: Key | Question, known: Vocabulary) -> str:
    """Return a question for a message: `has_role(_, "banned", Repo)`."""
    name, slots = node
    if isinstance(slots, int):
        return shown(name)
    return shown(f"{name}({', '.join(_slot_words(slot, known) for slot in slots)})")


def _slot_words(slot: Slot, known: Vocabulary) -> str:
    if isinstance(slot, Value):
        return str(slot)
    if slot == known.everything:
        return "_"
    return next((name for name, mask in known.masks.items() if mask == slot), "_")
