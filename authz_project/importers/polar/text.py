"""A policy on paper, with the comments of the original."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from textwrap import wrap

from authz_project.importers.polar.blocks import Block, Rules
from authz_project.importers.polar.conditions import WrittenCondition
from policy.language import ast
from policy.language.printer import print_formula, print_item
from policy.values import quoted

WIDTH = 100  # characters of a comment that was none

ALLOW = """
# Roles can be asked for as permissions can: /authorize answers for both.
allow(actor: Actor, action: String, resource: Resource) if has_permission(actor, action, resource);
allow(actor: Actor, role: String, resource: Resource) if has_role(actor, role, resource);
"""
ALLOW_RELATIONS = """
allow(actor: Actor, relation: String, resource: Resource) if has_relation(resource, relation, actor);
"""
VALUES = """# A value that a condition asks for: the tuple's own, or else the request's.
"""
USERSETS = """
# Stands for a userset in questions: {name}{{"group:eng#member"}}, which is given the role "member" on the group.
actor {name} {{}}
"""


def comment_lines(lines: Iterable[str]) -> list[str]:
    """Write comments as Polar has them."""
    return [f"# {_visible(line)}".rstrip() for text in lines for line in (text.splitlines() or [""])]


def block_text(block: Block) -> str:
    keyword = "actor" if block.is_actor else "resource"
    lines = comment_lines(block.type.comment)
    body = [*_declared(block), *_ruled(block)]
    opening = f"{keyword} {block.name} {{"
    lines += [opening, *body, "}"] if body else [f"{opening}}}"]
    for rules in block.rules:
        lines += [text for rule in rules.longhand for text in ("", print_item(rule))]
    return "\n".join(lines) + "\n"


def _declared(block: Block) -> Iterator[str]:
    """Yield the names of the block, with the comments of those that no rule speaks of."""
    silent = {rules.name: rules.comment for rules in block.rules if rules.comment and not rules.shorthand}
    for keyword, names in (("roles", block.roles), ("permissions", block.permissions)):
        if names:
            yield from _names(keyword, names, silent)
    if block.relations:
        for name, _ in block.relations:
            yield from comment_lines(silent.get(name, ()))
        inside = ", ".join(f"{name}: {type_name}" for name, type_name in block.relations)
        yield f"relations = {{ {inside} }};"


def _names(keyword: str, names: list[str], commented: dict[str, tuple[str, ...]]) -> Iterator[str]:
    if not any(name in commented for name in names):
        yield f"{keyword} = [{', '.join(map(quoted, names))}];"
        return
    yield f"{keyword} = ["
    for name in names:
        if name in commented:
            yield from comment_lines(commented[name])
        yield f"{quoted(name)},"
    yield "];"


def _ruled(block: Block) -> Iterator[str]:
    is_first = True
    for rules in block.rules:
        if not rules.shorthand:
            continue
        if is_first or rules.comment:
            yield ""
        is_first = False
        yield from comment_lines(rules.comment)
        yield from _shorthands(rules)


def _shorthands(rules: Rules) -> Iterator[str]:
    for each in rules.shorthand:
        yield f"{print_formula(each.head)} if {print_formula(each.body)};"


def declares_text(block: Block) -> str:
    """Write the declarations of relations that lead to several types."""
    comments = {rules.name: rules.comment for rules in block.rules}
    lines: list[str] = []
    for name, declared in block.declared.items():
        targets = [each.types[-1].text for each in declared]
        about = " ".join(comments.get(name, ())) or f"leads to {' and '.join(targets)}"
        lines += comment_lines([f"{quoted(name)}: {about}"])
        lines += map(print_item, declared)
    return "".join(f"{line}\n" for line in dict.fromkeys(lines))


def condition_text(written: WrittenCondition) -> str:
    condition = written.condition
    lines = comment_lines(condition.comment)
    original = condition.text or condition.name
    lines += comment_lines(wrap(original, WIDTH))
    lines.append(f"resource {written.name} {{}}")
    for rule in written.rules:
        lines += ["", print_item(rule)]
    return "\n".join(lines) + "\n"


def rules_text(rules: Iterable[ast.Rule]) -> str:
    return "".join(f"{print_item(rule)}\n" for rule in rules)


def _visible(line: str) -> str:
    """Return the line without what comments cannot hold."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029\u202a-\u202e\u2066-\u2069]", " ", line).strip()
