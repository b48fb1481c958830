"""Queries -> SQL for the caller's database: the use cases behind the endpoints and the command.

What depends on stored facts only is evaluated here, in the snapshot in which the policy is read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from checks.asking import limits, run
from checks.asking.advice import warning_on
from checks.asking.ask import Asker, LiveSession, confirmed, settled
from checks.asking.question import (
    NEW_SIGNATURE,
    AskedPolicy,
    Outline,
    PreparedCache,
    Question,
    StatementKey,
    Values,
    check_predicate,
    inline_rows,
    numbering_of,
    outline_of,
    policy_of,
    program_of,
    shared_cache,
)
from checks.engine.compile import MOST_WEIGHT
from checks.engine.plan.plan import Branch, Exit, Plan
from checks.engine.rules import clauses
from checks.engine.rules.clauses import Col, Const, Refusals, Var
from checks.engine.rules.ruleset import RuleSet
from checks.engine.sql.rounds import Fetched
from checks.engine.sql.text import Statement, Text, union
from checks.errors import NestedTooDeep, TooComplex
from facts.accept import Unused
from facts.numbering import Numbering, marks_of, numbers_as_of, signature_numbers
from facts.table import count_up_to
from facts.wire import by_signature
from localsql.bindings import Bindings, bindings_from_text, check_column, log_once, output_name
from localsql.dialects import NATIVE, Family, Typed
from localsql.errors import NotExpressible, StoredBesides, TooLargeStatement, TooManyConstants, UnboundedVariable
from localsql.fold import Residual, pruned
from localsql.plan import CallerTables, ConstantRows, Execution, LocalBranch, LocalBranches, Splitter, planned
from localsql.render import TOP, DoesNotFit, Layouts, LocalRenderer, check_whole
from policy.active import Seen
from policy.core.clock import timeline
from policy.errors import AuthzError
from policy.publishing import Ignored
from policy.rules.program import Atom, Program, Signature

# ---- statements ---------------------------------------------------------------------------------------------------
# Folded plans -> the final SQL: a single row, a query for rows, or a condition on the caller's column.
#
# A result that is already certain needs no SELECT from tables: it is TRUE, FALSE, or a list of constants. A condition
# is a single expression that can be combined with AND and NOT.

TRUE, FALSE = "TRUE", "FALSE"
EVERY = "*"


@dataclass(frozen=True)
class Folded:
    types: tuple[str, ...]  # of the result columns
    names: tuple[str, ...]  # the caller's names of the result columns
    branches: LocalBranches


# ---- whether there is a result ---------------------------------------------------------------------------------


def verdict(renderer: LocalRenderer, folded: Folded, column: str) -> str:
    """Return a SELECT of one row with one truth value."""
    branches = folded.branches
    if any(branch.is_certain for branch in branches.each):
        return f"SELECT {TRUE} AS {column}"
    scope, _ = renderer.entered(branches.plan, TOP)
    arms = renderer.arms(branches.plan.exits, scope)
    if not arms:
        return f"SELECT {FALSE} AS {column}"
    return renderer.head(("SELECT EXISTS (", *union(arms, distinct=False), f") AS {column}"))


# ---- rows ---------------------------------------------------------------------------------------------------------


def rows(renderer: LocalRenderer, folded: Folded, columns: Sequence[str], every: str | None = None) -> str:
    """Return a SELECT of the distinct results, with these column names.

    A result that stands for every value is represented by the text `every`; without it, such a result is rejected.
    """
    ends = [_shown(folded, branch, every) for branch in folded.branches.each]
    families = [renderer.layouts.family(name) for name in folded.types]
    named = [renderer.dialect.quoted(column) for column in columns]
    scope, _ = renderer.entered(folded.branches.plan, TOP)
    arms = renderer.arms(ends, scope, renderer.outs(families))
    if not arms:
        nothing = (f"{renderer.dialect.null(family)} AS {name}" for family, name in zip(families, named))
        return f"SELECT {', '.join(nothing)}{renderer.dialect.dual} WHERE FALSE"
    fields = ", ".join(f"o{index}" for index in range(len(columns)))
    answers: Text = (f"__answers({fields}) AS (", *union(arms, distinct=True), ")")
    shown = (
        f"{renderer.dialect.shown(f'o{index}', family)} AS {name}"
        for index, (family, name) in enumerate(zip(families, named))
    )
    return renderer.head((f"SELECT {', '.join(shown)} FROM __answers",), answers)


def _shown(folded: Folded, branch: LocalBranch, every: str | None) -> Exit:
    opened = branch.open_columns
    if not opened:
        return branch.exit
    if every is None:
        raise UnboundedVariable(folded.names[opened[0]], folded.types[opened[0]])
    if branch.withheld != ():
        raise _all_but_some(folded, opened[0])
    outs = tuple(Const(every) if isinstance(out, Var) else out for out in branch.exit.outs)
    return Exit(branch.exit.branch, outs)


def _all_but_some(folded: Folded, index: int) -> NotExpressible:
    name, type_name = folded.names[index], folded.types[index]
    return NotExpressible(
        f"cannot list `{name}`: it can be all {type_name} ids except some, depending on facts in your database; "
        f"give a query for all {type_name} ids under `domains` in the data bindings"
    )


# ---- conditions ----------------------------------------------------------------------------------------------------


def condition(renderer: LocalRenderer, folded: Folded, column: str) -> str:
    """Return an expression that is true for the caller's rows whose column is among the results."""
    side = renderer.dialect.column(column, renderer.tables.bindings.family(folded.types[0]))
    return _Condition(renderer, folded, side).among(folded.branches)


@dataclass(frozen=True)
class _Condition:
    renderer: LocalRenderer
    folded: Folded
    side: Typed  # the caller's column

    def among(self, branches: LocalBranches) -> str:
        """Return the test that the column is among the values of the branches."""
        if any(branch.is_everything for branch in branches.each):
            return TRUE
        gates = [self._gate(branches, branch) for branch in branches.each if branch.open_columns]
        listed = _listed(self.renderer, branches.plan, [w.exit for w in branches.each if not w.open_columns], self.side)
        if TRUE in gates:
            return TRUE
        pieces = [each for each in dict.fromkeys((*gates, listed or FALSE)) if each != FALSE]
        if len(pieces) < 2:
            return pieces[0] if pieces else FALSE
        return f"({' OR '.join(pieces)})"

    def _gate(self, branches: LocalBranches, branch: LocalBranch) -> str:
        """Return the test of a branch for every value: its own conditions, and that the column is not withheld."""
        if branch.withheld is None:
            raise _all_but_some(self.folded, 0)
        tests = [] if branch.is_certain else [_exists(self.renderer, branches.plan, branch.exit)]
        tests += map(self._not_among, branch.withheld)
        if FALSE in tests:
            return FALSE
        tests = [each for each in dict.fromkeys(tests) if each != TRUE]
        if len(tests) < 2:
            return tests[0] if tests else TRUE
        return f"({' AND '.join(tests)})"

    def _not_among(self, withheld: LocalBranches) -> str:
        for plan in withheld.plans():
            check_whole(self.renderer.dialect, plan)
        found = self.among(withheld)
        return TRUE if found == FALSE else f"NOT ({found})"


def _exists(renderer: LocalRenderer, plan: Plan, end: Exit) -> str:
    own = renderer.anew()
    scope, _ = own.entered(plan, TOP)
    arms = own.arms([Exit(end.branch, ())], scope)
    return f"EXISTS ({own.head(union(arms, distinct=False))})" if arms else FALSE


def _listed(renderer: LocalRenderer, plan: Plan, ends: list[Exit], side: Typed) -> str | None:
    """Return the test that the column is among the results of the exits; None if it cannot be."""
    own = renderer.anew()
    constants = sorted({text for end in ends for text in constants_of(end) or ()})
    scope, _ = own.entered(plan, TOP)
    others = [end for end in ends if constants_of(end) is None]
    side = own.list_side(others, side, scope)
    arms = own.list_arms(others, side, scope)
    if not arms:
        return own.dialect.among(side, constants)
    possible = own.dialect.constants(constants, side.family if side.family in NATIVE else Family.TEXT)
    if possible:
        arms.append(own.constants(possible))
    column = side.sql if side.family in NATIVE else own.dialect.text(side)
    found = union(arms, distinct=False)
    if len(arms) < 2 or own.dialect.plans_unions:
        return f"{column} IN ({own.head(found)})"
    return f"{column} IN ({own.head(('SELECT o0 FROM __answers',), ('__answers(o0) AS (', *found, ')'))})"


def constants_of(end: Exit) -> list[str] | None:
    """Return the results of an exit with one column, if they are constants."""
    match end:
        case Exit(Branch((), ()), (Const(text),)):
            return [text]
        case Exit(Branch((ConstantRows(number, known, (_,)),), ()), (Col(source, _),)) if source == number:
            return [row[0] for row in known]
    return None


# ---- use cases: one for each kind of SQL ---------------------------------------------------------------------------

RenderSql = Callable[[LocalRenderer, Folded], str]


class LocalSql(NamedTuple):
    """The SQL, the context facts that had no effect, and the policy version and revision that it was made with."""

    sql: str
    unused: Unused
    version_id: int | None
    seen: Seen  # the environment's state in the snapshot
    warning: str  # about words of the query that the policy does not have
    valid_while: None = None  # not cached

    @property
    def revision(self) -> int:
        """The revision that the SQL was made with, as in results of checks."""
        return self.seen.offset


def authorize(asker: Asker, question: Question, bindings: str | None) -> LocalSql:
    return answered(asker, question, bindings, lambda renderer, folded: verdict(renderer, folded, "allowed"))


def actions(asker: Asker, question: Question, bindings: str | None) -> LocalSql:
    """Return a query for the actions. If the policy allows any action, the result is `*`, as in the service's own."""
    return answered(asker, question, bindings, lambda renderer, folded: rows(renderer, folded, ("actions",), EVERY))


def filtered(asker: Asker, question: Question, bindings: str | None, column: object, path: str = "column") -> LocalSql:
    """Return a condition on the column, which takes the place of the query's only variable."""
    with run.question_time():
        checked = check_column(column, bindings_from_text(bindings).dialect, path)
        return answered(asker, question, bindings, lambda renderer, folded: condition(renderer, folded, checked))


def selected(asker: Asker, question: Question, bindings: str | None, columns: dict[str, object]) -> LocalSql:
    """Return a query for the solutions, with a column for each variable; without columns, for whether there is one.

    `columns` maps the caller's names of the variables to column names, in the order of the query's variables.
    """
    if not columns:
        return answered(asker, question, bindings, lambda renderer, folded: verdict(renderer, folded, "result"))
    names = [output_name(column, f"mode.query_vars_to_output_column_names.{name}") for name, column in columns.items()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise NotExpressible(f"two variables are selected into the column `{twice}`; use different column names")
    return answered(asker, question, bindings, lambda renderer, folded: rows(renderer, folded, names))


# ---- from a query to its SQL ---------------------------------------------------------------------------------------


def answered(asker: Asker, question: Question, text: str | None, render: RenderSql) -> LocalSql:
    """Return the SQL for the query. Planning and rendering together must stay within `planning_timeout`."""
    with run.question_time():
        bindings = bindings_from_text(text)

        def attempt(session: LiveSession) -> tuple[LocalSql | None, int | None]:
            with clauses.uncounted():  # the policy may have to be compiled
                useful = session.brought(question.context, "query.context_facts")
            shaped = _shaped(session, bindings, question._replace(context=useful.facts))
            with run.snapshot():
                with clauses.uncounted():
                    state = confirmed(asker)
                    # Whether signatures still have the numbers that the query was planned with.
                    is_known = marks_of(session.environment_id) == shaped.prepared.numbering.marks
                if state.version != session.version or not is_known:
                    return None, state.version if is_known else NEW_SIGNATURE
                warning = warning_on(session.program, (question,))
                try:
                    sql = _sql(shaped, render)
                except TooManyConstants:
                    _check_stored_besides(session.environment_id, bindings)
                    raise
                return LocalSql(sql, useful.unused, session.version, state.seen, warning), session.version

        with clauses.bounded(limits.planning_timeout()):
            found = settled(asker, None, attempt)
            assert found is not None, "it is settled only if the version is the session's"
            return found


# ---- facts that are both bound and stored --------------------------------------------------------------------------
# A bound fact comes from its table. Facts that are stored besides count as well, as constants in the SQL: there should
# be few. Usually there are many because `sync_facts` stores the rows of the same tables.

MANY = 1_000
_COUNTED = 200_000


def stored_besides(environment_id: int, bindings: Bindings) -> dict[Signature, Ignored]:
    """Return how many facts of each bound signature are stored as well, if there are any."""
    numbers = signature_numbers(environment_id)
    counts = {each: count_up_to(_COUNTED, [numbers[each]]) for each in bindings.by_signature if each in numbers}
    return {signature: Ignored(count, count >= _COUNTED) for signature, count in counts.items() if count}


def pattern_of(signature: Signature) -> str:
    """Return the pattern of all facts of a signature, as `delete_facts` takes it."""
    return f"{signature.predicate}({', '.join(f'{name}:_' for name in signature.types)})"


def _check_stored_besides(environment_id: int, bindings: Bindings) -> None:
    """Raise `StoredBesides` if many facts are both bound and stored: most likely these are the constants."""
    found = stored_besides(environment_id, bindings)
    signature = max(found, key=lambda each: found[each].count, default=None)
    if signature is not None and found[signature].count >= MANY:
        raise StoredBesides(str(signature), pattern_of(signature), str(found[signature]))


@dataclass(frozen=True)
class Shaped:
    """A query's plan, and its parameters' values."""

    key: StatementKey
    prepared: PreparedPlan
    tables: CallerTables
    slots: dict[str, object]
    names: tuple[str, ...]  # the caller's names of the result columns


def _shaped(session: LiveSession, bindings: Bindings, question: Question) -> Shaped:
    mentioned = question.mentioned.union(bindings.types)
    with clauses.uncounted():  # the policy may have to be compiled
        program = session.program_for(mentioned)
    for predicate, _ in question.calls:
        check_predicate(program, predicate)
    if session.version is not None:
        log_once(session.version, bindings)
    slots: dict[str, object] = {"now": str(run.current_time())}
    outline = outline_of(question, Values(program.names, slots))
    tables = CallerTables(bindings, frozenset(by_signature(question.context)))
    policy, marks = policy_of(session.version, mentioned), marks_of(session.environment_id)
    key = StatementKey(
        session.environment_id, policy, None, marks, run.dialect(),
        (outline,), len(outline.outs), tables.inline, tables=tables,
    )  # fmt: skip
    try:
        prepared = plans.found(key) or plans.made(key, lambda key: _prepared(key, outline, tables))
    except AuthzError as refusal:
        raise question.in_words_of_caller(refusal) from None
    if question.context:
        slots["facts"] = inline_rows(question.context, prepared.numbering.of)
    return Shaped(key, prepared, tables, slots, tuple(map(question.called, question.outs)))


# ---- planning: once for each shape of queries -----------------------------------------------------------------------


@dataclass(frozen=True)
class PreparedPlan:
    branches: LocalBranches
    types: tuple[str, ...]  # of the result columns
    splitter: Splitter
    program: Program
    numbering: Numbering
    reads: int = 0  # number of tables that its plan reads


plans: PreparedCache[PreparedPlan] = shared_cache(1024)


@lru_cache(maxsize=64)
def _rules_of(policy: AskedPolicy) -> RuleSet:
    """Return a rule set for local SQL only: a rule set serves one thread at a time, and decisions have their own."""
    return RuleSet(program_of(policy), patience=limits.planning_timeout())


timeline.forgets(_rules_of.cache_clear)


def _prepared(key: StatementKey, outline: Outline, tables: CallerTables) -> PreparedPlan:
    assert key.policy is not None and key.environment_id is not None, "a query is about an environment's policy"
    asked, branches = (tables, outline.root, outline.out_types), LocalBranches(Plan("nothing", 0, ()), ())
    with _refused_for_a_while(key):
        rules, numbering = _rules_of(key.policy), numbering_of(numbers_as_of(key.environment_id), key.inline)
        splitter = Splitter(tables, key.dialect, numbering)
        with rules.planning((*asked, numbering.marks)):
            limits.check()
            try:
                if key.places(rules.program):
                    branches = planned(rules, *asked, numbering.knows)
                for plan in branches.plans():
                    splitter.of(plan)  # so that nothing is left to split at execution
            except RecursionError:
                raise NestedTooDeep from None
        return PreparedPlan(branches, outline.out_types, splitter, rules.program, numbering, branches.plan.weight)


# ---- execution: once for each query ----------------------------------------------------------------------------------


def _sql(shaped: Shaped, render: RenderSql) -> str:
    """Return the SQL, rendered in the time that planning left of `planning_timeout`."""
    asked = (shaped.key, frozenset((name, str(value)) for name, value in shaped.slots.items() if name != "now"))
    with _refused_for_a_while(asked):
        return _rendered(shaped, render)


_refused = Refusals()  # plans and statements that exceeded the limit
timeline.forgets(_refused.known.clear)


@contextmanager
def _refused_for_a_while(asked: Hashable) -> Iterator[None]:
    """Refuse again what recently exceeded the limit, and remember it if it does now.

    The rule set remembers such refusals for decisions, but not here: the limit around all of the work began before
    planning, so it is reached first.
    """
    _refused.repeat(asked)
    try:
        yield
    except TooComplex as refused:
        _refused.remember(asked, refused)
        raise


def _rendered(shaped: Shaped, render: RenderSql) -> str:
    prepared = shaped.prepared
    tables = shaped.tables  # the cached plan may have been made with tables of another database
    execution = Execution(_executed, shaped.slots)
    residual = Residual(prepared.splitter, shaped.slots, execution.rows, lambda plan: _rule_of(prepared.program, plan))
    folded = Folded(prepared.types, shaped.names, _folded(prepared.branches, residual))
    if any(plan.weight > MOST_WEIGHT for plan in folded.branches.plans()):
        raise TooLargeStatement
    layouts = Layouts(tables.bindings)
    try:
        return render(LocalRenderer(tables.bindings.dialect, tables, layouts), folded)
    except DoesNotFit:
        layouts = replace(layouts, has_texts_only=True)
        return render(LocalRenderer(tables.bindings.dialect, tables, layouts), folded)


def _executed(statement: Statement, slots: dict[str, object]) -> list[Fetched]:
    with clauses.uncounted():  # statements have their own limit
        return run.execute(statement, slots)


def _folded(branches: LocalBranches, residual: Residual) -> LocalBranches:
    """Return the remaining branches, after evaluating everything that depends on stored facts only."""
    split = residual.splitter.of(branches.plan)
    plan = residual.folded(split, (), {})
    ends = (residual.row(end, parts, {}) for end, parts in split.exits)
    return LocalBranches.of(plan, (_branch(plan, end, each, residual) for end, each in zip(ends, branches.each)))


def _branch(plan: Plan, end: Exit | None, branch: LocalBranch, residual: Residual) -> LocalBranch | None:
    if end is None or not pruned(replace(plan, exits=(end,))).exits:
        return None
    if branch.withheld is None:
        return LocalBranch(end, None)
    withheld = [folded for each in branch.withheld if (folded := _folded(each, residual)).each]
    if any(each.is_everything for folded in withheld for each in folded.each):
        return None
    return LocalBranch(end, tuple(withheld))


def _rule_of(program: Program, plan: Plan) -> str:
    """Return the rule that makes the recursion nonlinear; if none is found, the recursive predicate."""
    names = {state.call.predicate for state in plan.states}
    for rule in program.rules:
        calls = [each for each in rule.body if isinstance(each, Atom) and each.predicate in names]
        if rule.head.predicate in names and len(calls) > 1:
            line, _ = program.source.position(rule.origin.start)
            return f"the rule `{rule}` (line {line})"
    return f"the recursion of `{min(names, default=plan.name)}`"
