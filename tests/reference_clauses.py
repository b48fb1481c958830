"""A policy as clauses for the oracle: longhand as it stands, shorthand spelled out, negations told what they share."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, cached_property

from policy.language import ast
from policy.values import ACTOR, RESOURCE, STRING, Value

# ---- walking the tree -------------------------------------------------------------------------------------


@cache
def parts(kind: type) -> tuple[str, ...] | None:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


def children(node: object) -> tuple[object, ...]:
    names_of_parts = parts(type(node))
    if names_of_parts is not None:
        return tuple([getattr(node, name) for name in names_of_parts])
    return node if isinstance(node, tuple) else ()


def nodes(node: object) -> Iterator[object]:
    """Yield a node and all below it, each before its own."""
    waiting = [node]
    while waiting:
        yield (first := waiting.pop())
        waiting += reversed(children(first))


def names(thing: object) -> frozenset[str]:
    """The variables that occur outside of negations."""
    if isinstance(thing, ast.Variable):
        return frozenset({thing.name} - {"_"})
    if isinstance(thing, ast.Not | NoneSuch):
        return frozenset()
    return frozenset().union(*(names(child) for child in children(thing)))


def mentioned(thing: object) -> frozenset[str]:
    return frozenset(node.name for node in nodes(thing) if isinstance(node, ast.Variable))


def declared(policy: ast.Policy) -> dict[str, ast.Block]:
    return {item.name.text: item for item in policy.items if isinstance(item, ast.Block) and item.name}


def supertypes(type_name: str, blocks: Mapping[str, ast.Block]) -> frozenset[str]:
    """The type and every type that its values belong to."""
    block = blocks.get(type_name)
    if block is None:
        return frozenset({type_name})
    above = (supertypes(name.text, blocks) for name in block.extends)
    return frozenset({type_name, RESOURCE, *([ACTOR] if block.kind == "actor" else [])}).union(*above)


# ---- clauses: rules and shorthand, read alike -------------------------------------------------------------


@dataclass(frozen=True)
class Clause:
    predicate: str
    head: tuple[ast.Term, ...]
    body: ast.Formula

    @property
    def key(self) -> tuple[str, int]:
        return self.predicate, len(self.head)

    @cached_property
    def reads(self) -> frozenset[tuple[str, int]]:
        """The predicates that the body looks at, with how many arguments."""
        calls = (node for node in nodes(self.body) if isinstance(node, ast.Call))
        return frozenset((node.predicate.text, len(node.args)) for node in calls)


@dataclass(frozen=True)
class NoneSuch:
    """`not`, told which of its variables the outside shares; the others are existential inside it."""

    formula: ast.Formula
    shared: frozenset[str]


def clauses_of(policy: ast.Policy) -> list[Clause]:
    blocks = declared(policy)
    clauses = [longhand(item.head, item.body) for item in policy.items if isinstance(item, ast.Rule)]
    for block in policy.items:
        if isinstance(block, ast.Block):
            shorts = [item for item in block.items if isinstance(item, ast.Shorthand)]
            clauses += [shorthand(item, block, vocabulary(policy, blocks)) for item in shorts]
    for params in (("actor", "action"), ("actor", "action", "resource")):
        if not any(c.predicate == "allow" and len(c.head) == len(params) for c in clauses):
            clauses.append(clause("allow", params, [call("has_permission", *map(ast.Variable, params))]))
    return clauses


def longhand(head: ast.Head, body: ast.Formula | None) -> Clause:
    params, conditions = [], [] if body is None else [body]
    for index, param in enumerate(head.params):
        term = param.variable if isinstance(param, ast.Parameter) else param
        if term == ast.Variable("_"):
            term = ast.Variable(f"_ {index}")
        if isinstance(param, ast.Parameter):
            conditions.append(ast.Matches(term, param.type))
        params.append(term)
    return clause(head.predicate.text, params, conditions)


def clause(predicate: str, params: Iterable[str | ast.Term], conditions: list[ast.Formula]) -> Clause:
    head = tuple(ast.Variable(param) if isinstance(param, str) else param for param in params)
    return Clause(predicate, head, scoped(ast.And(tuple(conditions)), names(head)))


def scoped(formula: ast.Formula, outside: frozenset[str]) -> ast.Formula:
    match formula:
        case ast.And(parts):
            others = [outside.union(*(names(p) for p in parts if p is not part)) for part in parts]
            return ast.And(tuple(sorted(map(scoped, parts, others), key=effort)))
        case ast.Or(parts):
            return ast.Or(tuple(scoped(part, outside) for part in parts))
        case ast.Not(inner):
            return NoneSuch(scoped(inner, outside), outside)
    return formula


def effort(formula: ast.Formula) -> int:
    """The order in which conjuncts are tried: it saves time and changes no answer."""
    order = (ast.Truth, ast.Call, ast.Membership, ast.And, ast.Or, ast.Matches, ast.Comparison, NoneSuch)
    return order.index(type(formula))


# ---- shorthand -------------------------------------------------------------------------------------------


ROLE, PERMISSION, RELATION = "has_role", "has_permission", "has_relation"
WORDS = {"role": ROLE, "permission": PERMISSION}
THE_ACTOR, THE_RESOURCE = ast.Variable("actor"), ast.Variable("resource")
Vocabulary = Mapping[tuple[str | None, str], tuple[str, ast.Name | None]]  # (type, name) -> predicate, relation's type
_fresh = itertools.count()


def vocabulary(policy: ast.Policy, blocks: Mapping[str, ast.Block]) -> Vocabulary:
    found: dict[tuple[str | None, str], tuple[str, ast.Name | None]] = {}
    everyone = {name: [blocks[above] for above in supertypes(name, blocks) if above in blocks] for name in blocks}
    for kind in (ACTOR, RESOURCE):  # have the names of all that are of the kind
        everyone[kind] = [block for name, block in blocks.items() if kind in supertypes(name, blocks)]
    everyone[None] = [item for item in policy.items if isinstance(item, ast.Block) and item.kind == "global"]
    for name, sources in everyone.items():
        for item in itertools.chain.from_iterable(block.items for block in sources):
            if isinstance(item, ast.NameList):
                found |= {(name, entry.text): (WORDS[item.keyword.text[:-1]], None) for entry in item.names}
            elif isinstance(item, ast.RelationMap):
                found |= {(name, entry.name.text): (RELATION, entry.type) for entry in item.relations}
    return found


def shorthand(item: ast.Shorthand, block: ast.Block, known: Vocabulary) -> Clause:
    place = block.name.text if block.name else None
    body = spelled_out(item.body, place, known)
    predicate = WORDS[item.head.name] if item.head.is_word else known[place, item.head.name][0]
    conditions = [body, ast.Matches(THE_ACTOR, ast.Name(ACTOR))]
    if item.head.is_word:
        conditions.append(ast.Matches(ast.Variable(item.head.name), ast.Name(STRING)))
    if block.name:
        conditions.append(ast.Matches(THE_RESOURCE, block.name))
    return clause(predicate, (THE_ACTOR, named(item.head), *([THE_RESOURCE] if block.name else [])), conditions)


def named(reference: ast.Reference | ast.GlobalReference) -> ast.Term:
    return ast.Variable(reference.name) if reference.is_word else ast.Literal(Value(STRING, reference.name))


def spelled_out(formula: ast.Formula, place: str | None, known: Vocabulary) -> ast.Formula:
    match formula:
        case ast.And(parts) | ast.Or(parts):
            return type(formula)(tuple(spelled_out(part, place, known) for part in parts))
        case ast.Not(inner):
            return ast.Not(spelled_out(inner, place, known))
        case ast.Reference(_, _, None) if place:
            return held(formula, THE_RESOURCE, place, known)
        case ast.Reference(_, _, relation) if place:
            other, target = ast.Variable(f"on {next(_fresh)}"), known[place, relation][1]
            link = call(RELATION, THE_RESOURCE, ast.Literal(Value(STRING, relation)), other)
            return ast.And((link, held(formula, other, target.text, known), ast.Matches(other, target)))
        case ast.Reference(name, is_word) | ast.GlobalReference(name, is_word):
            return call(WORDS[name] if is_word else known[None, name][0], THE_ACTOR, named(formula))
    return formula


def held(reference: ast.Reference, thing: ast.Variable, place: str, known: Vocabulary) -> ast.Formula:
    """The actor has the role or permission on the thing, or is what the relation leads to."""
    if reference.is_word:
        text = ast.Matches(ast.Variable(reference.name), ast.Name(STRING))
        return ast.And((call(WORDS[reference.name], THE_ACTOR, named(reference), thing), text))
    predicate, target = known[place, reference.name]
    if predicate == RELATION:
        return ast.And((call(RELATION, thing, named(reference), THE_ACTOR), ast.Matches(THE_ACTOR, target)))
    return call(predicate, THE_ACTOR, named(reference), thing)


def call(predicate: str, *args: ast.Term) -> ast.Call:
    return ast.Call(ast.Name(predicate), args)
