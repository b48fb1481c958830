"""An explanation as JSON, and as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from checks.explain.bindings import ANY
from checks.explain.explain import Explained, Explanation
from checks.explain.tree import Node, Written
from policy.values import Value

Paint = Callable[[str, str], str]  # a colour and a text

# ---- JSON ----------------------------------------------------------------------------------------------------


def explanation_to_json(explanation: Explanation, is_query: bool) -> dict[str, object]:
    """`is_query` has a proof or obstacles for each of its calls."""
    head: dict[str, object] = {"allowed": explanation.allowed, "policy_version": explanation.version}
    if explanation.unused:
        head["unused_context_facts"] = list(explanation.unused.sentences)
    goals = [_goal_to_json(goal) for goal in explanation.goals]
    return {**head, "calls": goals} if is_query else {**head, **goals[0]}


def _goal_to_json(goal: Explained) -> dict[str, object]:
    return {
        "goal": goal.text,
        "allowed": goal.holds,
        "proof": node_to_json(goal.proof) if goal.proof else None,
        "obstacles": [node_to_json(each) for each in goal.obstacles],
        "note": goal.note,
    }


def node_to_json(node: Node) -> dict[str, object]:
    """Without the members that have nothing to say."""
    found: dict[str, object] = {"kind": node.kind, "text": node.text}
    if node.atom:
        predicate, args = node.atom
        found["fact"] = {"predicate": predicate, "args": [_value_to_json(arg) for arg in args]}
    if node.source:
        found["source"] = node.source
    if node.rule:
        found["rule"] = {"text": node.rule.text, "line": node.rule.line}
    if node.bindings:
        found["bindings"] = {name: _value_to_json(value) for name, value in node.bindings}
    if node.met:
        found["met"] = list(node.met)
    if node.note:
        found["note"] = node.note
    if node.because:
        found["because"] = [node_to_json(each) for each in node.because]
    return found


def _value_to_json(value: Value) -> dict[str, str | None]:
    """An id of null is any."""
    return {"type": value.type, "id": None if value.id == ANY else value.id}


# ---- text -----------------------------------------------------------------------------------------------------

_GREEN, _RED, _DIM, _PLAIN = "\033[32m", "\033[31m", "\033[2m", "\033[0m"
_GOOD, _BAD = ("fact", "rule", "part", "comparison", "absence", "again", "unexplained"), ("missing", "false", "present")


def explanation_to_text(explanation: Explanation, filename: str, is_coloured: bool) -> Iterator[str]:
    paint = _painter(is_coloured)
    for goal in explanation.goals:
        verdict = paint(_GREEN, "allowed") if goal.holds else paint(_RED, "denied")
        version = f"policy version {explanation.version}" if explanation.version else "no policy"
        yield f"{verdict}  {goal.text}  {paint(_DIM, f'({version})')}"
        if goal.note:
            yield goal.note
        for root in (goal.proof,) if goal.proof else goal.obstacles:
            yield from _lines(root, filename, paint, root is goal.proof)
    for sentence in explanation.unused.sentences:
        yield paint(_RED, sentence)


def _painter(is_coloured: bool) -> Paint:
    return lambda colour, text: f"{colour}{text}{_PLAIN}" if is_coloured and text else text


def _lines(root: Node, filename: str, paint: Paint, is_proof: bool) -> Iterator[str]:
    """Depth first, each line with the branches of the tree that it hangs on."""
    waiting = [(root, "", "", "")]
    while waiting:
        node, before, branch, below = waiting.pop()
        first, *others = told(node, filename)
        yield f"{before}{branch}{_marked(node, first, paint)}"
        trunk = before + below
        stem = "│ " if node.because else "  "
        for other in others:
            yield f"{trunk}{stem}{paint(_DIM, other)}"
        last = len(node.because) - 1
        following = [
            (each, trunk, "└─ " if index == last else "├─ ", "   " if index == last else "│  ")
            for index, each in enumerate(node.because)
        ]
        waiting += reversed(following)


def _marked(node: Node, text: str, paint: Paint) -> str:
    if node.kind in _BAD:
        return f"{paint(_RED, '✗')} {text}"
    return f"{paint(_GREEN, '✓')} {text}" if node.kind in _GOOD else f"{paint(_RED, '·')} {text}"


def told(node: Node, filename: str) -> list[str]:
    """The line of a node, and what is said below it."""
    match node.kind:
        case "comparison":
            return [node.text]
        case "rule" | "part":
            kind = "stated at" if node.source == "policy" else "by"
            return [node.text, f"{kind} {_rule_text(node, filename)}"]
        case "fact":
            return [f"{node.text}  {'context' if node.source == 'context' else 'stored'} fact"]
        case "obstacle":
            met = [f"holds: {text}" for text in node.met]
            return [_rule_text(node, filename), *met]
        case "absence":
            return [f"{node.text}  nothing makes it true"]
        case "again":
            return [f"{node.text}  explained above"]
        case "present":
            return [f"{node.text}  but it holds"]
        case "false":
            return [f"{node.text}  is not true"]
    return [f"{node.text}  {node.note}".rstrip()]


def place_of(rule: Written, filename: str) -> str:
    if rule.line is None:
        return "the rule that is there by default"
    # A text of several files has lines of its own.
    return f"{filename}:{rule.line}" if filename and ", " not in filename else f"line {rule.line}"


def _rule_text(node: Node, filename: str) -> str:
    assert node.rule is not None, "of a rule"
    return f"{place_of(node.rule, filename)}: {node.rule.text}"
