"""An independent look at explanations: is every step an instance of a rule, and every leaf so?

It shares nothing with the explainer: rules are those of the oracle, found by the lines that the explanation names;
what holds is what the oracle's model says. A rule's step is right if its body can be met by what stands below it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from policy.language import ast, parse
from policy.language.source import Source
from policy.values import BOOLEAN, Value
from tests.reference import Model, World, model_of, solutions, unified, unmentioned
from tests.reference_clauses import Clause, clauses_of, declared, longhand, shorthand, vocabulary

Row = tuple[Value, ...]
TRUTHS = ("true", "false")
_BELOW = "below "


@dataclass(frozen=True)
class Truth:
    """What the policy means over the facts, and its clauses by the line that they start on."""

    world: World
    model: Model
    stored: frozenset
    context: frozenset
    clauses: dict[int | None, list[tuple[str, Clause]]]
    any_truth: str = TRUTHS[0]  # a Boolean that may be any is looked at as this one


def rows_of(facts: list[dict]) -> tuple[tuple[str, Row], ...]:
    """Facts as they are sent."""
    return tuple((fact["predicate"], tuple(Value(arg["type"], arg["id"]) for arg in fact["args"])) for fact in facts)


@cache  # both databases are held to the same
def truth(text: str, stored: tuple, context: tuple, mentioned: tuple[Value, ...]) -> Truth:
    policy = parse(Source(text))
    facts = [*stored, *context]
    world = World.of(policy, facts, mentioned)
    model = model_of(policy, facts, world)
    return Truth(world, model, frozenset(stored), frozenset(context), clauses_by_line(policy, text))


def clauses_by_line(policy: ast.Policy, text: str) -> dict[int | None, list[tuple[str, Clause]]]:
    blocks, source = declared(policy), Source(text)
    known = vocabulary(policy, blocks)
    found: dict[int | None, list[tuple[str, Clause]]] = defaultdict(list)

    def note(item, clause: Clause) -> None:
        found[source.position(item.span.start)[0]].append((_squeezed(text[item.span.start : item.span.end]), clause))

    for item in policy.items:
        if isinstance(item, ast.Rule):
            note(item, longhand(item.head, item.body))
        elif isinstance(item, ast.Block):
            for each in item.items:
                if isinstance(each, ast.Shorthand):
                    note(each, shorthand(each, item, known))
    written = {clause for pairs in found.values() for _, clause in pairs}
    defaults = (clause for clause in clauses_of(policy) if clause.predicate == "allow" and clause not in written)
    found[None] = [("", clause) for clause in defaults]
    return found


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def faults_of(said: dict, goal: tuple[str, Row], known: Truth) -> list[str]:
    """What is wrong with the explanation of a goal, whichever Boolean stands for any."""
    faults = faults_of_proof if said["allowed"] else faults_of_obstacles
    part = said["proof"] if said["allowed"] else said
    found = (fault for text in TRUTHS for fault in faults(part, goal, replace(known, any_truth=text)))
    return list(dict.fromkeys(found))


# ---- proofs ----------------------------------------------------------------------------------------------------


def faults_of_proof(proof: dict, goal: tuple[str, Row], known: Truth) -> list[str]:
    """What is wrong with a proof of the goal; nothing if it is one."""
    if row_of(proof, known) != goal:
        return [f"{proof['text']} is not the goal"]
    proven: set[tuple[str, Row]] = set()
    return list(_faults(proof, known, proven))


def _faults(node: dict, known: Truth, proven: set) -> Iterator[str]:
    for child in node.get("because", ()):
        yield from _faults(child, known, proven)
    row = row_of(node, known)
    match node["kind"]:
        case "fact":
            place = known.stored if node["source"] == "stored" else known.context
            if row not in place:
                yield f"{node['text']} is no {node['source']} fact"
        case "rule":
            yield from _faults_of_step(node, row, known)
        case "again":
            if row is None or row not in proven:
                yield f"{node['text']} was not proven before"
        case "part" | "comparison" | "absence":
            pass  # the rule above is looked at with them
        case kind:
            yield f"{node['text']} is {kind}: {node.get('note')}"
    if row is not None:
        proven.add(row)


def _faults_of_step(node: dict, row: tuple[str, Row], known: Truth) -> Iterator[str]:
    """Some clause at the line has this head, and a body that what stands below meets."""
    if any(child["kind"] == "unexplained" and "fact" not in child for child in node.get("because", ())):
        return  # a part of the rule that nothing is told of
    below: dict = defaultdict(set)
    for predicate, args in _premises(node, known):
        below[predicate, len(args)].add(args)
    candidates = [clause for text, clause in known.clauses[node["rule"]["line"]] if not text or _matches(node, text)]
    if not candidates:
        yield f"line {node['rule']['line']} has no rule `{node['rule']['text']}`"
    elif not any(_follows(clause, row, below, known, _named(node, known)) for clause in candidates):
        yield f"{node['text']} does not follow by `{node['rule']['text']}` from {dict(below)}"


def _matches(node: dict, text: str) -> bool:
    shown = node["rule"]["text"]
    return text == shown or (shown.endswith("…") and text.startswith(shown[:-1]))


def _follows(clause: Clause, row: tuple[str, Row], below: Model, known: Truth, bindings: dict[str, Value]) -> bool:
    predicate, args = row
    if clause.predicate != predicate or len(clause.head) != len(args):
        return False
    for env in unified(clause.head, args, {}, known.world):
        mine = {**bindings, **env}
        if any(mine[name] != env[name] for name in env):
            continue
        model = {**known.model, **{(f"{_BELOW}{name}", arity): rows for (name, arity), rows in below.items()}}
        if any(True for _ in solutions(_resting(clause.body), mine, model, model, known.world)):
            return True
    return False


def _resting(formula: ast.Formula) -> ast.Formula:
    """The formula whose calls are of what stands below the step, but for those inside of negations."""
    match formula:
        case ast.Call(predicate, args):
            return ast.Call(ast.Name(f"{_BELOW}{predicate.text}"), args)
        case ast.And(parts) | ast.Or(parts):
            return type(formula)(tuple(map(_resting, parts)))
    return formula


def _named(node: dict, known: Truth) -> dict[str, Value]:
    """The bindings of a rule, by the names of the text; those of shorthand have other names in the oracle."""
    is_longhand = "(" in node["rule"]["text"].partition(" if ")[0]
    return {name: value_of(raw, known) for name, raw in node.get("bindings", {}).items()} if is_longhand else {}


def _premises(node: dict, known: Truth) -> Iterator[tuple[str, Row]]:
    for child in node.get("because", ()):
        row = row_of(child, known)
        if row is not None:
            yield row
        elif child["kind"] == "part":
            yield from _premises(child, known)


def row_of(node: dict, known: Truth) -> tuple[str, Row] | None:
    if "fact" not in node:
        return None
    return node["fact"]["predicate"], tuple(value_of(raw, known) for raw in node["fact"]["args"])


def value_of(raw: dict, known: Truth) -> Value:
    if raw["id"] is not None:
        return Value(raw["type"], raw["id"])
    return Value(BOOLEAN, known.any_truth) if raw["type"] == BOOLEAN else unmentioned(raw["type"])


# ---- obstacles -------------------------------------------------------------------------------------------------


def faults_of_obstacles(said: dict, goal: tuple[str, Row], known: Truth) -> list[str]:
    """What is wrong with the obstacles to a goal; at least one is named, unless no rule concerns it."""
    if not said["obstacles"]:
        is_noted = any(reason in said["note"] for reason in ("no rule", "no matching rule", "the policy has no"))
        return [] if is_noted else ["no obstacle, and no reason for it"]
    return [fault for node in said["obstacles"] for fault in _faults_of_obstacle(node, goal, known)]


def _faults_of_obstacle(node: dict, goal: tuple[str, Row] | None, known: Truth) -> Iterator[str]:
    if node["kind"] == "unexplained":
        return  # other rules, of which there are too many to say
    if goal is not None:
        clauses = [c for text, c in known.clauses[node["rule"]["line"]] if not text or _matches(node, text)]
        if not clauses and "(" in node["rule"]["text"]:
            yield f"line {node['rule']['line']} has no rule `{node['rule']['text']}`"
        if any(_follows(clause, goal, known.model, known, {}) for clause in clauses):
            yield f"`{node['rule']['text']}` grants {goal}"
    for missing in node["because"]:
        row = row_of(missing, known)
        if row is not None and row[1] in known.model.get((row[0], len(row[1])), ()):
            yield f"{missing['text']} is not missing"
        if missing["kind"] == "present":
            yield from (f for proof in missing.get("because", ()) for f in _faults(proof, known, set()))
        else:
            for below in missing.get("because", ()):
                yield from _faults_of_obstacle(below, row, known)
