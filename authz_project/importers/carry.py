"""From what was read to a policy with tests, and facts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from authz_project.importers.duplicate_tuples import check_duplicates
from authz_project.importers.facts import Facts
from authz_project.importers.model import Imported
from authz_project.importers.polar import text
from authz_project.importers.polar.blocks import written_blocks
from authz_project.importers.polar.certainty import without_circles
from authz_project.importers.polar.conditions import value_rules, written_condition
from authz_project.importers.polar.layout import Layout, layout_of
from authz_project.importers.polar.scenarios import WrittenTests, written_tests
from authz_project.importers.polar.unsupported_conditions import report_unsupported
from authz_project.importers.report import Report
from authz_project.importers.trial import without_failures
from facts.wire import Fact
from policy.language import ast
from policy.language.format import formatted
from policy.language.printer import print_item
from policy.rules import compile_text


@dataclass(frozen=True)
class Options:
    """`clock`: parameters that are the service's clock. `usersets`: whether questions about usersets are answered."""

    clock: frozenset[str] = frozenset()
    usersets: bool = False


@dataclass(frozen=True)
class Counts:
    types: int
    relations: int
    conditions: int
    tuples: int
    facts: int
    assertions: int  # of the original
    tests: int


@dataclass(frozen=True)
class Carried:
    policy: str
    facts: tuple[Fact, ...]
    layout: Layout
    counts: Counts


def carried(imported: Imported, report: Report, options: Options = Options()) -> Carried:
    """Write it all; what has no equal here is in the report, and grants nothing. ImportRejected if tuples clash."""
    check_duplicates(imported)
    model = without_circles(imported.model, report)
    layout = layout_of(model, report, options.clock)
    report_unsupported(model, report)
    facts = tuple(Facts(layout).of_all(imported.tuples, report))
    tests = written_tests(replace(imported, model=model), layout, report)
    policy = formatted(_policy(layout, tests, options))
    if tests.tests and (kept := without_failures(compile_text(policy), tests, report)) != tests:
        policy, tests = formatted(_policy(layout, kept, options)), kept
    relations = sum(len(type_.relations) for type_ in imported.model.types)
    counts = Counts(
        len(model.types), relations, len(model.conditions), len(imported.tuples), len(facts), tests.assertions,
        len(tests.tests),
    )  # fmt: skip
    return Carried(policy, facts, layout, counts)


def _policy(layout: Layout, tests: WrittenTests, options: Options) -> str:
    has_usersets = options.usersets or tests.asks_usersets
    written = written_blocks(layout, has_usersets)
    parts = ["\n".join(text.comment_lines(layout.model.comment)) + "\n"] if layout.model.comment else []
    if has_usersets:
        parts.append(text.USERSETS.format(name=layout.userset_type).lstrip())
    for block in written.blocks:
        parts.append(text.block_text(block))
        parts.append(text.declares_text(block))
    conditions = layout.model.conditions
    for each in conditions:
        name = layout.conditions[each.name]
        parts.append(text.condition_text(written_condition(each, name, each.name in written.failing, layout.clock)))
    if conditions:
        parts.append(text.VALUES + text.rules_text(value_rules()))
    if any(block.roles for block in written.blocks):
        leads = any(set(layout.targets(*key)) & layout.actors for key in layout.apart.leading)
        parts.append(text.ALLOW.lstrip() + (text.ALLOW_RELATIONS.lstrip() if leads else ""))
    items: list[ast.Item] = [*([tests.fixture] if tests.fixture else []), *tests.tests]
    parts += [f"{print_item(item)}\n" for item in items]
    return "\n".join(part for part in parts if part)
