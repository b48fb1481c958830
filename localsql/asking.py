"""Questions -> SQL for the caller's database: the use cases of the endpoints and the command.

What stored facts decide is worked out here, in one snapshot with the policy that the SQL is made for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from django.conf import settings

from checks.asking import run
from checks.asking.open_policy import open_program
from checks.asking.prepared import Question, Setting, Values, brought_to, check_predicate, inline_rows, root_of
from checks.engine.compile import MOST_WEIGHT, Root
from checks.engine.plan.plan import Net
from checks.engine.rules.ruleset import RuleSet
from checks.errors import PolicyMoved
from facts.accept import Unused
from facts.batches import by_signature
from facts.numbering import Numbering, signature_mark
from localsql.bindings import Bindings, bindings_from_text
from localsql.column_names import check_column, output_name
from localsql.errors import CannotSay
from localsql.layouts import Layouts
from localsql.parts import Execution
from localsql.planning import Ways, planned
from localsql.pruning import pruned
from localsql.relations import CallerTables
from localsql.render import LocalRenderer
from localsql.residual import Residual
from localsql.split import Splitter, SplitWay, SplitWays
from localsql.statements import EVERY, Folded, FoldedWay, FoldedWays, condition, rows, verdict
from localsql.unused_bindings import log_once
from policy.active import Caller, confirm, program_of_version
from policy.errors import AuthzError
from policy.models import Environment
from policy.rules.program import Atom, Program

_TRIES = 10

Form = Callable[[LocalRenderer, Folded], str]


@dataclass(frozen=True, slots=True)
class Trusted:
    """Who asks from inside, and needs no key."""

    environment_id: int
    policy_version_id: int | None = None


Asker = Caller | Trusted


class Said(NamedTuple):
    """The SQL, and what of the question's context counted for nothing."""

    sql: str
    unused: Unused


# ---- the forms -------------------------------------------------------------------------------------------------


def authorize(asker: Asker, question: Question, bindings: str | None) -> Said:
    return answered(asker, question, bindings, lambda renderer, folded: verdict(renderer, folded, "allowed"))


def actions(asker: Asker, question: Question, bindings: str | None) -> Said:
    """An action that the policy lets be any is `*`, as in the answers of the service itself."""
    return answered(asker, question, bindings, lambda renderer, folded: rows(renderer, folded, ("actions",), EVERY))


def filtered(asker: Asker, question: Question, bindings: str | None, column: object, path: str = "column") -> Said:
    """A condition on the column: it is the one variable that the question asks for."""
    with run.question_time():
        checked = check_column(column, bindings_from_text(bindings).dialect, path)
        return answered(asker, question, bindings, lambda renderer, folded: condition(renderer, folded, checked))


def selected(asker: Asker, question: Question, bindings: str | None, columns: dict[str, object]) -> Said:
    """The question's answers, by variable under the name of a column; without any, whether there is an answer.

    `columns` are by the caller's names for the variables, in the order of the question's.
    """
    if not columns:
        return answered(asker, question, bindings, lambda renderer, folded: verdict(renderer, folded, "result"))
    names = [output_name(column, f"mode.query_vars_to_output_column_names.{name}") for name, column in columns.items()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CannotSay(f"two variables are selected into the column `{twice}`; give each a name of its own")
    return answered(asker, question, bindings, lambda renderer, folded: rows(renderer, folded, names))


# ---- the way there ------------------------------------------------------------------------------------------------


def answered(asker: Asker, question: Question, text: str | None, form: Form) -> Said:
    with run.question_time():
        bindings = bindings_from_text(text)
        for _ in range(_TRIES):
            asker = _confirmed(asker)
            setting = Setting(asker.environment_id, asker.policy_version_id)
            useful = brought_to(setting, question.context, "query.context_facts")
            shaped = _shaped(setting, bindings, question._replace(context=useful.facts))
            with run.snapshot():
                if _is_active(shaped, asker):
                    return Said(_sql(shaped, form), useful.unused)
    raise PolicyMoved


def _is_active(shaped: Shaped, asker: Asker) -> bool:
    """Whether the policy is still the one that was planned for, and no signature was given a number since."""
    if _confirmed(asker).policy_version_id != asker.policy_version_id:
        return False
    return signature_mark(asker.environment_id) == shaped.prepared.numbering.mark


def _confirmed(asker: Asker) -> Asker:
    if isinstance(asker, Caller):
        return confirm(asker)
    environment = Environment.objects.only("policy_version_id").get(pk=asker.environment_id)
    return Trusted(environment.pk, environment.policy_version_id)


@dataclass(frozen=True)
class Shaped:
    """A question's plan, and the values that go into it."""

    prepared: Prepared
    tables: CallerTables
    slots: dict[str, object]
    names: tuple[str, ...]  # of the answer columns, as the caller calls them


def _shaped(setting: Setting, bindings: Bindings, question: Question) -> Shaped:
    mentioned = _types_of(bindings, question)
    program = setting.program(mentioned)
    if setting.version is not None:
        _check(program, question)
        log_once(setting.version, bindings)
    slots: dict[str, object] = {"now": str(int(time.time()))}
    root = root_of(question, Values(program.names, slots))
    types = tuple(question.variables[name].type for name in question.outs)
    knows = all(map(program.knows, question.types))
    tables = CallerTables(bindings, frozenset(by_signature(question.context)))
    known, mark = setting.own(mentioned), signature_mark(setting.environment_id)
    try:
        prepared = _prepared(setting, mark, known, tables, root, types, knows)
    except AuthzError as refusal:
        raise question.in_words_of_caller(refusal) from None
    if question.context:
        slots["facts"] = inline_rows(question.context, prepared.numbering.of)
    return Shaped(prepared, tables, slots, tuple(map(question.called, question.outs)))


def _types_of(bindings: Bindings, question: Question) -> frozenset[str]:
    context = (signature.types for signature in by_signature(question.context))
    return frozenset(bindings.types).union(question.types, *context)


def _check(program: Program, question: Question) -> None:
    for predicate in {predicate for predicate, _ in question.calls}:
        check_predicate(program, predicate)


# ---- once for each shape --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    ways: SplitWays
    types: tuple[str, ...]  # of the answer columns
    splitter: Splitter
    program: Program
    numbering: Numbering


@lru_cache(maxsize=1024)
def _prepared(
    setting: Setting,
    mark: int | None,  # of the environment's signatures, whose numbers are in statements
    types_known: frozenset[str],
    tables: CallerTables,
    root: Root,
    types: tuple[str, ...],
    knows: bool,
) -> Prepared:
    rulebook, numbering = _rulebook(setting.version, types_known), Numbering(setting.environment_id)
    splitter = Splitter(tables, run.dialect(), numbering.of)
    ways = planned(rulebook, tables, root, types) if knows else Ways(Net("nothing", 0, ()), ())
    return Prepared(splitter.ways(ways), types, splitter, rulebook.program, numbering)


@lru_cache(maxsize=64)
def _rulebook(version: int | None, types: frozenset[str]) -> RuleSet:
    program = program_of_version(version) or open_program(types)
    return RuleSet(program, patience=settings.PLANNING_TIMEOUT)


# ---- once for each question ------------------------------------------------------------------------------------------


def _sql(shaped: Shaped, form: Form) -> str:
    prepared = shaped.prepared
    tables = shaped.tables  # those that it was prepared with may be of another database
    execution = Execution(run.execute, shaped.slots)
    residual = Residual(prepared.splitter, shaped.slots, execution.rows, lambda net: _rule_of(prepared.program, net))
    folded = Folded(prepared.types, shaped.names, _folded(prepared.ways, residual))
    if any(net.weight > MOST_WEIGHT for net in folded.ways.nets()):
        raise CannotSay(
            "the question comes to too large a statement; ask about fewer types, or with fewer calls, at a time"
        )
    return form(LocalRenderer(tables.bindings.dialect, tables, Layouts(tables.bindings)), folded)


def _folded(ways: SplitWays, residual: Residual) -> FoldedWays:
    """The ways with what stored facts decide worked out: those that are left."""
    net = residual.folded(ways.net, (), {})
    kept = (_folded_way(net, way, residual) for way in ways.each)
    return FoldedWays(net, tuple(way for way in kept if way is not None))


def _folded_way(net: Net, way: SplitWay, residual: Residual) -> FoldedWay | None:
    end = residual.exit(way.exit, way.split, {})
    if end is None or not pruned(replace(net, exits=(end,))).exits:
        return None
    if way.withheld is None:
        return FoldedWay(end, None)
    withheld = [folded for each in way.withheld if (folded := _folded(each, residual)).each]
    if any(each.is_everything for folded in withheld for each in folded.each):
        return None
    return FoldedWay(end, tuple(withheld))


def _rule_of(program: Program, net: Net) -> str:
    """The rule that takes two answers of its own recursion, as far as it can be told."""
    names = {state.call.predicate.split(" ")[0] for state in net.states}
    for rule in program.rules:
        calls = [each for each in rule.body if isinstance(each, Atom) and each.predicate in names]
        if rule.head.predicate in names and len(calls) > 1:
            line, _ = program.source.position(rule.origin.start)
            return f"the rule `{rule}` (line {line})"
    return f"the recursion of `{min(names, default=net.name)}`"
