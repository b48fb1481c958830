"""What grants what in a policy, by resource type: the rules as a graph."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeGuard

from checks.explain.cases import ordered_body
from checks.explain.tree import abbreviated, formula_of, shown_literal
from policy.errors import NotFound
from policy.language.source import NOWHERE, Span
from policy.rules.components import reachable
from policy.rules.declarations import instead
from policy.rules.program import Atom, Literal, Not, Program, Rule, Term, Types, Var, types_of
from policy.values import STRING, Value

# ---- needs --------------------------------------------------------------------------------------------------------
# The roles and permissions that a condition requires, and on which types: this leads from one type to another.
#
# A condition may require them itself, as in `has_role(actor, "member", organization)`, or through other rules:
# `owns(actor, repository)`, if a rule says that whoever has a role on something owns the repository.

ROLE, PERMISSION, RELATION = "has_role", "has_permission", "has_relation"
ANY_NAME = "*"  # a rule about every role, or every permission
KIND_OF = {ROLE: "role", PERMISSION: "permission"}

_NodeKey = tuple[str, int, str | None]  # a predicate, its arity, and the name of a relation if given


@dataclass(frozen=True, slots=True)
class Need:
    """A role or permission on one of these types; None among them stands for a global one."""

    kind: str  # role or permission
    name: str  # or any
    types: tuple[str | None, ...]
    is_same: bool = False  # whether the name is that of what the rule grants


@dataclass(frozen=True, slots=True)
class Needed:
    """All that conditions require, and the positions of other rules through which they do."""

    needs: tuple[Need, ...] = ()
    through: frozenset[Span] = frozenset()


@dataclass
class Needing:
    """Finds what the conditions of a program's rules require."""

    program: Program
    known: dict[_NodeKey, Needed] = field(default_factory=dict)

    def of(self, rule: Rule, body: Iterable[Literal], types: Mapping[Var, Types]) -> Needed:
        """Return what a rule requires in one of its alternatives (`body`); `types` has the variables of both."""
        target = rule.head.args[1]
        found = [self._of_literal(literal, types, target) for literal in body]
        needs = dict.fromkeys(need for each in found for need in each.needs)
        return Needed(tuple(needs), frozenset().union(*(each.through for each in found)))

    def _of_literal(self, literal: Literal, types: Mapping[Var, Types], target: Term | None) -> Needed:
        """Return what a condition requires: nothing for comparisons and conditions with `not`."""
        if not isinstance(literal, Atom):
            return Needed()
        if asked := _asked(literal, types, target):
            return Needed((asked,))
        key = _key(literal)
        if key not in self.known:
            self.known[key] = self._by_rules(key)
        return self.known[key]

    def _by_rules(self, key: _NodeKey) -> Needed:
        needs: dict[Need, None] = {}
        through: set[Span] = set()

        def following(key: _NodeKey) -> Iterator[_NodeKey]:
            for rule in self._rules(key):
                if rule.origin != NOWHERE and rule.head.predicate not in self.program.helpers:
                    through.add(rule.origin)
                for literal in (each for each in rule.body if isinstance(each, Atom)):
                    if asked := _asked(literal, rule.types, None):
                        needs[asked] = None
                    else:
                        yield _key(literal)

        reachable((key,), following)
        return Needed(tuple(needs), frozenset(through))

    def _rules(self, key: _NodeKey) -> Iterator[Rule]:
        predicate, arity, name = key
        for rule in self.program.rules_by_predicate.get((predicate, arity), ()):
            granted = rule.head.args[1] if name is not None else None
            if not isinstance(granted, Value) or granted.id == name:
                yield rule


def _asked(atom: Atom, types: Mapping[Var, Types], target: Term | None) -> Need | None:
    """Return what the atom requires, if it is a role or a permission."""
    kind = KIND_OF.get(atom.predicate)
    if kind is None or len(atom.args) not in (2, 3):
        return None
    name = atom.args[1]
    owners: tuple[str | None, ...] = (None,)
    if len(atom.args) == 3:
        owners = tuple(sorted(types_in(types, atom.args[2])))
    return Need(kind, label_of(name), owners, isinstance(name, Var) and name == target)


def types_in(types: Mapping[Var, Types], term: Term) -> Types:
    match term:
        case Var():
            return types.get(term, frozenset())
        case Value(type=name):
            return frozenset((name,))
    return frozenset()


def label_of(term: object) -> str:
    return term.id if isinstance(term, Value) and term.type == STRING else ANY_NAME


def _key(atom: Atom) -> _NodeKey:
    name = atom.args[1] if atom.predicate == RELATION and len(atom.args) == 3 else None
    return atom.predicate, len(atom.args), name.id if isinstance(name, Value) else None


# ---- What grants what in a policy, by resource type: the rules as a graph for drawing -----------------------------

_NUMBER = re.compile(r"#\d+")  # distinguishes variables of the same name
MAX_LABEL = 44  # characters
MAX_GRANTS = 120  # per type
GLOBAL = "global"  # in place of a type, for roles and permissions without a resource
GLOBAL_TITLE = "Global roles"  # no type has such a name


@dataclass(frozen=True, slots=True)
class GraphNode:
    """The start or target of a grant: a role or permission of the type itself, or something outside of it.

    `owner` is the type, if nodes of several types are drawn together. `needs` are the roles and permissions, possibly
    of other types, that an outside node stands for.
    """

    kind: str  # role, permission, relation, or condition
    label: str
    owner: str = ""
    needs: tuple[Need, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Grant:
    """A rule as an edge: whoever has all sources has the target."""

    sources: tuple[GraphNode, ...]
    target: GraphNode
    line: int | None
    text: str
    needs: tuple[Need, ...] = ()  # of all sources together
    through: frozenset[Span] = frozenset()  # other rules that the needs come from


@dataclass(frozen=True, slots=True)
class Sheet:
    """One type, its declarations, and its grants."""

    type: str | None  # None: global
    roles: tuple[str, ...]
    permissions: tuple[str, ...]
    relations: tuple[tuple[str, str], ...]
    grants: tuple[Grant, ...]
    hidden: int = 0

    @property
    def name(self) -> str:
        return GLOBAL if self.type is None else self.type

    @property
    def title(self) -> str:
        return GLOBAL_TITLE if self.type is None else self.type


@dataclass(frozen=True)
class Graph:
    """All sheets of a policy, and the rules that are on none."""

    sheets: Mapping[str | None, Sheet]  # by type
    others: tuple[tuple[int, str, Span], ...]  # line, text and position

    @cached_property
    def sources(self) -> Mapping[str | None, tuple[str | None, ...]]:
        """Return the other types from which each type derives roles and permissions."""
        found = {}
        for name, sheet in self.sheets.items():
            taken = dict.fromkeys(each for grant in sheet.grants for need in grant.needs for each in need.types)
            found[name] = tuple(each for each in taken if each != name and each in self.sheets)
        return found

    @cached_property
    def followers(self) -> Mapping[str | None, tuple[str | None, ...]]:
        """Return the other types that derive roles and permissions from each type."""
        found: dict[str | None, list[str | None]] = {name: [] for name in self.sheets}
        for name, sources in self.sources.items():
            for source in sources:
                found[source].append(name)
        return {name: tuple(each) for name, each in found.items()}


def graph_of(program: Program) -> Graph:
    sheets = sheets_of(program)
    return Graph({sheet.type: sheet for sheet in sheets}, tuple(_other_rules(program, sheets)))


def sheets_of(program: Program) -> list[Sheet]:
    """Return a sheet for each type with roles, permissions or relations, and one for global ones."""
    granted = _granted(program)
    found = [
        _sheet(name, each.roles, each.permissions, tuple(each.relations.items()), granted.get(name, {}))
        for name, each in program.types.items()
    ]
    if program.has_global:
        found.append(_sheet(None, program.global_roles, program.global_permissions, (), granted.get(None, {})))
    return [each for each in found if each.roles or each.permissions or each.relations or each.grants]


def _other_rules(program: Program, sheets: list[Sheet]) -> Iterator[tuple[int, str, Span]]:
    """Yield line, text and position of the rules that are on no sheet."""
    seen: set[tuple[int | None, str]] = {(grant.line, grant.text) for sheet in sheets for grant in sheet.grants}
    for origin in sorted(program.written, key=lambda span: span.start):
        line, text = program.source.position(origin.start)[0], program.source.on_one_line(origin)
        if (line, text) not in seen:
            seen.add((line, text))
            yield line, text, origin


def _sheet(
    name: str | None, roles: tuple[str, ...], permissions: tuple[str, ...], relations: tuple[tuple[str, str], ...],
    granted: dict[Grant, None],
) -> Sheet:  # fmt: skip
    grants = tuple(granted)
    return Sheet(name, roles, permissions, relations, grants[:MAX_GRANTS], len(grants[MAX_GRANTS:]))


# ---- rules as grants ---------------------------------------------------------------------------------------------


def _granted(program: Program) -> dict[str | None, dict[Grant, None]]:
    """Return the grants by type, in one pass over the rules; the inner dicts are ordered sets."""
    needing, found = Needing(program), dict[str | None, dict[Grant, None]]()
    for predicate, kind in ((ROLE, "role"), (PERMISSION, "permission")):
        for arity in (2, 3):
            for rule in program.rules_by_predicate.get((predicate, arity), ()):
                if rule.origin != NOWHERE:
                    grants = dict.fromkeys(_grants_of_rule(needing, rule, GraphNode(kind, label_of(rule.head.args[1]))))
                    for name in types_of(rule.head.args[2], rule.types) if arity == 3 else (None,):
                        found.setdefault(name, {}).update(grants)
    return found


def _grants_of_rule(needing: Needing, rule: Rule, target: GraphNode) -> Iterator[Grant]:
    program = needing.program
    line, text = program.source.position(rule.origin.start)[0], program.source.on_one_line(rule.origin)
    alternatives: list[list[Literal]] = [[]]
    types = dict(rule.types)
    for literal in ordered_body(rule):
        parts = _alternatives(program, literal, types)
        alternatives = [[*each, *part] for each in alternatives for part in parts][:MAX_GRANTS]
    for body in alternatives:
        sources = tuple(dict.fromkeys(_sources(needing, rule, body, types))) or (GraphNode("condition", "everyone"),)
        needed = needing.of(rule, body, types)
        yield Grant(sources, target, line, text, needed.needs, needed.through)


def _alternatives(program: Program, literal: Literal, types: dict[Var, Types]) -> list[list[Literal]]:
    """Return the alternatives of a literal: the conditions of each side of an `or`, else only the literal itself."""
    if isinstance(literal, Atom) and literal.predicate in program.helpers:
        rules = program.rules_by_predicate.get((literal.predicate, len(literal.args)), ())
        if all(rule.head.args == literal.args for rule in rules):
            for rule in rules:
                types.update(rule.types)
            return [list(rule.body) for rule in rules]
    return [[literal]]


def _sources(needing: Needing, rule: Rule, body: list[Literal], types: Mapping[Var, Types]) -> Iterator[GraphNode]:
    actor, resource = rule.head.args[0], rule.head.args[2] if len(rule.head.args) > 2 else None
    related = [each for each in body if _is_link(each, resource)]
    links = {each.args[2]: each for each in related if isinstance(each.args[2], Var) and each.args[2] != actor}
    used: set[Atom] = set()

    def outside(kind: str, label: str, literal: Literal) -> GraphNode:
        return GraphNode(kind, label, needs=needing.of(rule, (literal,), types).needs)

    for literal in body:
        match literal:
            case Atom("has_role" | "has_permission" as predicate, (who, name, thing)) if who == actor:
                if thing == resource:
                    yield GraphNode(KIND_OF[predicate], label_of(name))
                elif thing in links:
                    used.add(links[thing])
                    yield outside("relation", f"{label_of(name)} on {label_of(links[thing].args[1])}", literal)
                else:
                    yield outside("condition", _condition(needing.program, literal), literal)
            case Atom("has_relation", (thing, name, who)) if thing == resource and who == actor:
                yield outside("relation", label_of(name), literal)
            case Atom("has_role" | "has_permission" as predicate, (who, name)) if who == actor and resource is None:
                yield GraphNode(KIND_OF[predicate], label_of(name))
            case Atom("has_role" | "has_permission", (who, name)) if who == actor:
                yield outside("condition", f"global {label_of(name)}", literal)
            case _ if literal not in links.values():
                yield outside("condition", _condition(needing.program, literal), literal)
    for link in links.values():
        if link not in used:
            yield outside("condition", _condition(needing.program, link), link)


def _is_link(literal: Literal, resource: Term | None) -> TypeGuard[Atom]:
    return isinstance(literal, Atom) and literal.predicate == RELATION and literal.args[0] == resource


def _condition(program: Program, literal: Literal) -> str:
    if isinstance(literal, Not) and literal.atom.predicate in program.helpers:
        text = f"not ({formula_of(program, literal.atom.predicate, len(literal.atom.args))})"
    else:
        is_ground = isinstance(literal, Atom) and all(isinstance(arg, Value) for arg in literal.args)
        text = shown_literal(program, literal, {}, 0) if is_ground else _NUMBER.sub("", str(literal))
    return abbreviated(text, MAX_LABEL)


# ---- Only what leads to one role or permission: the rules walked backward, from type to type ----------------------
# A condition with `not` is drawn with its rule, but the walk stops there.

_SheetPlace = tuple[str | None, str, str]  # a type, `role` or `permission`, and the name, or any


@dataclass(frozen=True, slots=True)
class Leading:
    """What leads to `target`: sheets with nothing else on them, that of the target first and the furthest last."""

    target: str  # such as `Repo.read`
    sheets: tuple[Sheet, ...]
    others: tuple[tuple[int, str, Span], ...]  # rules on no sheet that are part of a path
    start: GraphNode


def targets(graph: Graph) -> list[str]:
    """Return the possible targets of `leading_to`, such as `Repo.read`, permissions first."""
    sheets = graph.sheets.values()
    return [f"{each.name}.{name}" for each in sheets for name in each.permissions] + [
        f"{each.name}.{name}" for each in sheets for name in each.roles
    ]


def sheet_named(graph: Graph, name: str) -> Sheet:
    found = graph.sheets.get(None if name == GLOBAL else name) or graph.sheets.get(name)
    if found is None:
        names = [each.name for each in graph.sheets.values()]
        raise NotFound(f"the policy has no type `{name}`{instead(name, names)}")
    return found


def leading_to(graph: Graph, target: str) -> Leading:
    type_name, _, name = target.partition(".")
    sheet = sheet_named(graph, type_name)
    kinds = [kind for kind in ("permission", "role") if name in _names(sheet, kind)]
    if not kinds:
        names = [*sheet.permissions, *sheet.roles]
        raise NotFound(f"`{sheet.name}` has no role or permission `{name}`{instead(name, names)}")
    kept = _walked(graph, [(sheet.type, kind, name) for kind in kinds])
    sheets = tuple(_narrowed(graph.sheets[each], places) for each, places in kept.items())
    through = {span for each in sheets for grant in each.grants for span in grant.through}
    others = tuple(each for each in graph.others if each[2] in through)
    return Leading(f"{sheet.name}.{name}", sheets, others, GraphNode(kinds[0], name))


def _names(sheet: Sheet, kind: str) -> set[str]:
    declared = sheet.roles if kind == "role" else sheet.permissions
    return {*declared, *(grant.target.label for grant in sheet.grants if grant.target.kind == kind)} - {ANY_NAME}


def _walked(graph: Graph, start: list[_SheetPlace]) -> dict[str | None, list[_SheetPlace]]:
    """Return the places that lead to the start, by type; types are in the order of the walk."""
    found: dict[str | None, list[_SheetPlace]] = {}
    seen, waiting = set(start), list(start)
    for place in waiting:  # grows during the loop
        found.setdefault(place[0], []).append(place)
        for following in _before(graph, place):
            if following not in seen and following[0] in graph.sheets:
                seen.add(following)
                waiting.append(following)
    return found


def _before(graph: Graph, place: _SheetPlace) -> Iterator[_SheetPlace]:
    for grant in _granting(graph.sheets[place[0]], place):
        for need in grant.needs:
            for type_name in need.types:
                yield type_name, need.kind, _name_of(need, place[2])


def _name_of(need: Need, asked: str) -> str:
    return asked if need.is_same else need.name


def _granting(sheet: Sheet, place: _SheetPlace) -> Iterator[Grant]:
    _, kind, name = place
    for grant in sheet.grants:
        if grant.target.kind == kind and (name == ANY_NAME or grant.target.label in (name, ANY_NAME)):
            yield grant


def _narrowed(sheet: Sheet, places: list[_SheetPlace]) -> Sheet:
    """Return the sheet with only the grants of these places; a rule about every name becomes one about their names."""
    grants = dict.fromkeys(_as_asked(grant, place[2]) for place in places for grant in _granting(sheet, place))
    wanted = {(kind, name) for _, kind, name in places}
    used = {node.label.partition(" on ")[2] or node.label for grant in grants for node in grant.sources}
    return Sheet(
        sheet.type,
        tuple(name for name in sheet.roles if {("role", name), ("role", ANY_NAME)} & wanted),
        tuple(name for name in sheet.permissions if {("permission", name), ("permission", ANY_NAME)} & wanted),
        tuple(each for each in sheet.relations if each[0] in used),
        tuple(grants),
        sheet.hidden,
    )


def _as_asked(grant: Grant, name: str) -> Grant:
    """Return a rule about every name as one about this name."""
    if grant.target.label != ANY_NAME or name == ANY_NAME:
        return grant
    target, sources = replace(grant.target, label=name), grant.sources
    if any(need.is_same for need in grant.needs):
        sources = tuple(_node_as_asked(node, name) for node in sources)
    needs = tuple(_need_as_asked(each, name) for each in grant.needs)
    return replace(grant, sources=sources, target=target, needs=needs)


def _need_as_asked(need: Need, name: str) -> Need:
    return replace(need, name=_name_of(need, name), is_same=False)


def _node_as_asked(node: GraphNode, name: str) -> GraphNode:
    needs = tuple(_need_as_asked(need, name) for need in node.needs)
    if node.label == ANY_NAME:
        return replace(node, label=name, needs=needs)
    if node.label.startswith(f"{ANY_NAME} on "):
        return replace(node, label=f"{name}{node.label[len(ANY_NAME) :]}", needs=needs)
    return replace(node, needs=needs)


# ---- everything in one picture -------------------------------------------------------------------------------------


def joined(sheets: Sequence[Sheet]) -> tuple[Grant, ...]:
    """Return the grants of all sheets, with the owners of nodes, and grants that lead from one sheet to another.

    On the sheet of a Repo:   [member on org] -> reader
    Joined:                   Org: member -> Repo: [member on org] -> Repo: reader
    """
    drawn = {sheet.type for sheet in sheets}
    found: dict[Grant, None] = {}
    for sheet in sheets:
        for grant in sheet.grants:
            sources = tuple(replace(node, owner=sheet.title) for node in grant.sources)
            found[replace(grant, sources=sources, target=replace(grant.target, owner=sheet.title))] = None
            for node in sources:
                for need in node.needs:
                    found |= dict.fromkeys(_bridge(grant, node, need, name) for name in need.types if name in drawn)
    return tuple(found)


def _bridge(grant: Grant, node: GraphNode, need: Need, type_name: str | None) -> Grant:
    owner = GLOBAL_TITLE if type_name is None else type_name
    return Grant((GraphNode(need.kind, need.name, owner),), node, grant.line, grant.text)
