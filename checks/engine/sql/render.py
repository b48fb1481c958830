"""Render plans as SQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

from checks.engine.plan.draft import sources_of
from checks.engine.plan.plan import (
    AnswerArm,
    Answers,
    Branch,
    Condition,
    Exit,
    FactScan,
    Goals,
    Holds,
    Jump,
    Plan,
    PlanSource,
    Same,
    Tagged,
)
from checks.engine.rules.clauses import Cmp, Col, Const, Member, Operand, Slot, Term, Var, tick
from checks.engine.sql.text import (
    Column,
    Dialect,
    Formed,
    Piece,
    Shown,
    Text,
    Written,
    fused,
    in_chunks,
    joined,
    merged,
    settled,
    union,
)
from policy.rules.program import Signature

# ---- tables -------------------------------------------------------------------------------------------------------
# The WITH clause: the tables that a statement reads by name, including the context facts.

INLINE = "inline_fact"
FACTS = Slot("facts")


def inline_table(dialect: Dialect, inline: frozenset[Signature]) -> list[Text]:
    """Return the table of context facts of these signatures, in a list that is empty if there are none."""
    if not inline:
        return []
    rows = dialect.rows((FACTS,), max(len(each.types) for each in inline))
    return [(f"{INLINE} AS MATERIALIZED (", *rows, ")")]


def with_tables(tables: list[Text]) -> Text:
    """Return the WITH clause of a SELECT that reads these tables; empty if there are none."""
    return ("WITH RECURSIVE ", *joined(", ", tables), " ") if tables else ()


# ---- Rows of one column -> a page of them, sorted, or their number ------------------------------------------------
# <rows>  ->  SELECT q.o0 FROM (<rows>) q WHERE q.o0 > :after GROUP BY q.o0 ORDER BY q.o0 NULLS FIRST LIMIT :limit

AFTER = Slot("after")
BEFORE = Slot("before")
CONTAINED = Slot("contained")
LIMIT = Slot("limit")


class Window(NamedTuple):
    """A window over the sorted rows of a one-column answer.

    `has_after`: those after an id; `has_before`: the last ones before an id; `has_text`: only those that contain a
    text. `is_counted`: instead of rows, how many there are, and how many of them precede an id.
    """

    has_after: bool = False
    has_before: bool = False
    has_text: bool = False
    is_counted: bool = False


def seen_through(window: Window, dialect: Dialect, rows: Text) -> Text:
    """Return a SELECT of a page of the distinct rows, or of their number.

    GROUP BY makes the rows distinct: the sort that orders them finds equal ones, too.
    """
    column = dialect.bytewise(("q.o0",))
    tests: list[Text] = []
    if window.has_text:
        tests.append(("(q.o0 IS NULL OR ", *dialect.place_of(CONTAINED, "q.o0"), " > 0)"))
    if window.has_after:
        tests.append((*column, " > ", AFTER))
    if window.has_before and not window.is_counted:
        tests.append((*column, " < ", BEFORE))
    where: Text = (" WHERE ", *joined(" AND ", tests)) if tests else ()
    found: Text = ("SELECT q.o0 FROM (", *rows, ") q", *where, " GROUP BY q.o0")
    if window.is_counted:
        before: Text = ("COUNT(CASE WHEN ", *column, " < ", BEFORE, " THEN 1 END)") if window.has_before else ("0",)
        return ("SELECT COUNT(q.o0) AS o0, ", *before, " AS o1 FROM (", *found, ") q")
    order = " DESC LIMIT " if window.has_before else " NULLS FIRST LIMIT "
    return (*found, " ORDER BY ", *column, order, LIMIT)


# ---- scope --------------------------------------------------------------------------------------------------------
# The names visible to a SELECT: the sources in scope, and its tables of goals and answers.

Mentioned = TypeVar("Mentioned")  # what a renderer stores about a source in scope


class SelectScope(NamedTuple, Generic[Mentioned]):
    """The names visible to a SELECT: its own sources, those of enclosing SELECTs, and the tables of its plan."""

    names: Mapping[int, str] = {}  # alias of each source, by number
    seen: Mapping[int, Mentioned] = {}
    depth: int = 0
    prefix: str = ""  # of table names
    plan: Plan | None = None  # the plan whose goals and answers can be read
    goals: Piece | None = None  # name of the table, if there is one
    answers: Piece | None = None
    lateral: type | None = None  # in a recursive step: the kind of source that is read around it, one row at a time
    tables: Mapping[int, Piece] = {}  # by source, for goals and answers read from other tables
    looked_up: frozenset[int] = frozenset()  # sources that are facts as of an earlier revision
    mark: str = ""  # prefix of all names, as a caller's SQL has names of its own

    def own(self, letter: str) -> str:
        """Return the name of a table at this depth."""
        return f"{self.mark}{self.prefix}{letter}{self.depth}"

    @property
    def row(self) -> str:
        """The alias of the row that a recursive step continues from; its depth distinguishes nested steps."""
        return f"{self.mark}p{self.depth}"

    def inside(self, plan: Plan) -> SelectScope[Mentioned]:
        """Return the scope of the plan's branches, one level deeper, with its tables not yet named."""
        return self._replace(depth=self.depth + 1, plan=plan, goals=None, answers=None, lateral=None)

    def around(self, plan: Plan) -> Hashable:
        """Return all of this scope that a nested plan's SQL depends on: what it mentions, and where its names start."""
        given = {each.source for each in plan.outer_columns}
        seen = frozenset((n, self.names.get(n), self.seen.get(n), n in self.looked_up) for n in given)
        return seen, len(self.names), self.depth, self.prefix, self.mark

    def is_outer(self, source: PlanSource) -> bool:
        return self.lateral is not None and isinstance(source, self.lateral)

    def read(self, sources: tuple[PlanSource, ...]) -> tuple[PlanSource, ...]:
        """Return the sources that this select reads itself; the recursive row comes from around it."""
        if self.lateral is None:
            return sources
        return tuple(source for source in sources if not isinstance(source, self.lateral))


# ---- steps --------------------------------------------------------------------------------------------------------
# A branch as steps of a nested loop: each source, with the conditions that it is looked up by.


def steps_of(branch: Branch, read: tuple[PlanSource, ...]) -> Iterator[tuple[PlanSource | None, list[Condition]]]:
    """Yield each source with the conditions that can be tested from it on; first None, with those on no source."""
    places = {source.number: place for place, source in enumerate(read, 1)}
    ready: list[list[Condition]] = [[] for _ in range(len(read) + 1)]
    for condition in branch.conditions:
        ready[max((places.get(number, 0) for number in sources_of(condition)), default=0)].append(condition)
    yield from zip((None, *read), ready)


def existential_in(branch: Branch, columns: Iterable[Column]) -> list[PlanSource]:
    """Return the facts to test with EXISTS: no column shows them, and no condition joins them with others.

    Empty unless the branch also tests a nested plan that mentions no source: testing the facts first may avoid that
    test.
    """
    mentioned = [sources_of(each) for each in branch.conditions]
    if not any(isinstance(each, Holds) and not numbers for each, numbers in zip(branch.conditions, mentioned)):
        return []
    tied = {number for numbers in mentioned if len(numbers) > 1 for number in numbers}
    tied |= {number for column in columns for number in _shown_by(column)}
    return [each for each in branch.sources if isinstance(each, FactScan) and each.number not in tied]


def _shown_by(column: Column) -> Iterable[int]:
    """Return the numbers of the sources that the column depends on."""
    match column:
        case Formed(Col(source)):
            return (source,)
        case Written(_, sources):
            return sources
    return ()


ColumnNames = tuple[Col, frozenset[str]]  # a column and the constants it may be


def names_of(source: PlanSource | None, conditions: list[Condition]) -> dict[Condition, ColumnNames]:
    """Return the conditions with constants, if the conditions cover all columns of a stored fact; else empty."""
    if not isinstance(source, FactScan) or source.store != "stored":
        return {}
    columns = [_column_of(each, source.number) for each in conditions]
    if len({column for column in columns if column}) != len(source.signature.types):
        return {}
    named = ((each, _names_in(each)) for each, column in zip(conditions, columns) if column)
    return {each: names for each, names in named if names}


def _names_in(condition: Condition) -> ColumnNames | None:
    match condition:
        case Same(Col() as column, Const(text)):
            return column, frozenset((text,))
        case Member(Col() as column, ids):
            return column, frozenset(ids)
    return None


def _column_of(condition: Condition, source: int) -> str | None:
    """Return the column of the source that the condition restricts to one value or to several."""
    match condition:
        case Same(Col(number) as column, _) | Member(Col(number) as column, _) if number == source:
            return column.name
    return None


# ---- layout -------------------------------------------------------------------------------------------------------
# The columns of tables of goals and answers: all text, the same for all states, and empty if a state has none.


@dataclass(frozen=True)
class Padded:
    """Columns shared by the rows of all states. A row without a value for one, or with every value, has ''.

    answer 'doc1' to a goal with the key 'alice', in the columns c0 c1 o0  ->  'alice', '', 'doc1'
    """

    names: tuple[str, ...]
    seed: Callable[[Text], Text]  # puts a value in the form that a recursive table requires

    def cells(self, tag: int, terms: Mapping[str, Term]) -> list[Column]:
        return [self._cell(terms.get(name)) for name in self.names]

    def _cell(self, term: Term | None) -> Column:
        return self._empty if term is None or isinstance(term, Var) else Formed(term, self.seed)

    @cached_property
    def _empty(self) -> Text:
        """Computed once, as most cells of wide tables are empty."""
        return self.seed((Const(""),))


def padded(keys: int, outs: int, seed: Callable[[Text], Text]) -> Padded:
    names = (*(f"c{index}" for index in range(keys)), *(f"o{index}" for index in range(outs)))
    return Padded(names, seed)


# ---- render -------------------------------------------------------------------------------------------------------
# Plan -> SQL text for any database: stored facts (see `stored`), or a caller's tables (see `localsql`).
#
#     exits only                 arm UNION ALL arm …
#     with goals                 WITH RECURSIVE g(tag, c0 …) AS (seeds UNION moves) arms, some of which read g
#     with answers               … , a(tag, c0 …, o0 …) AS (…) arms, some of which read a
#
# Join order is the plan's, pinned with CROSS JOIN. Aliases are numbered by position, so that equal branches have equal
# SQL. None instead of a text means a SELECT that can have no rows, such as one for a value that its column cannot have.

ColumnsOf = Callable[[Exit], Sequence[Column]]


def no_columns(end: Exit) -> Sequence[Column]:
    """Return no columns: for a plan that is tested with EXISTS."""
    return ()


class DialectForRendering(Protocol):
    """What a renderer requires of any dialect."""

    @property
    def recursive_arms_join(self) -> bool:
        """Whether the recursive arms go into one lateral union, because a table may mention itself only once."""

    @property
    def dual(self) -> str:
        """The FROM clause of a SELECT with a condition but without a table."""

    def steps(self, name: str, row: str, columns: list[str], arms: list[Text]) -> list[Text]:
        """Return the arms as a recursive table may have them; they refer to the row they continue from as `row`."""


class TableLayout(Protocol):
    """The columns of a table of goals or answers."""

    @property
    def names(self) -> Sequence[str]:
        """All columns except the tag."""

    def cells(self, tag: int, terms: Mapping[str, Term]) -> Sequence[Column]:
        """Return the cells of a row with this tag; `terms` are its values, by the plan's column names."""


AnyDialect = TypeVar("AnyDialect", bound=DialectForRendering)


@dataclass
class Renderer(ABC, Generic[AnyDialect, Mentioned]):
    """Traverses a plan and writes its SELECTs; subclasses define what to read and how to compare."""

    dialect: AnyDialect
    reads: ClassVar[Piece] = " FROM "

    # ---- for subclasses: where sources are read, and how values are compared ----------------------------------------

    @abstractmethod
    def letter(self, source: PlanSource) -> str:
        """Return the first letter of aliases of such a source."""

    @abstractmethod
    def seen(self, source: PlanSource, alias: str, branch: Branch, scope: SelectScope[Mentioned]) -> Mentioned:
        """Return what the scope stores about a source of the branch."""

    @abstractmethod
    def table(self, source: PlanSource, branch: Branch, scope: SelectScope[Mentioned]) -> Text | None:
        """Return the table of a source other than goals and answers; None if it has no rows."""

    @abstractmethod
    def row_tests(self, source: PlanSource, branch: Branch, scope: SelectScope[Mentioned]) -> Iterable[Text]:
        """Return the tests that make a row of the table one of the source's."""

    @abstractmethod
    def layout(self, plan: Plan, kind: type[Goals] | type[Answers]) -> TableLayout:
        """Return the columns of the plan's goals or answers."""

    @abstractmethod
    def shown(self, column: Shown, scope: SelectScope[Mentioned]) -> Text | None:
        """Return the term as a column of a SELECT; None if it can have no such value."""

    @abstractmethod
    def among(self, operand: Operand, ids: tuple[str, ...], scope: SelectScope[Mentioned]) -> Text | bool:
        """Return the test that the operand is one of the ids, or a bool if that is certain."""

    @abstractmethod
    def equal(self, left: Operand, right: Operand, scope: SelectScope[Mentioned]) -> Text | bool:
        """Return the test that both are the same id, or a bool if that is certain."""

    @abstractmethod
    def unequal(self, left: Operand, right: Operand, scope: SelectScope[Mentioned]) -> Text | bool:
        """Return the test that they are different ids, or a bool if that is certain."""

    @abstractmethod
    def number(self, operand: Operand, scope: SelectScope[Mentioned]) -> Text:
        """Return the operand as a number, for comparisons of size."""

    @abstractmethod
    def entered(self, plan: Plan, scope: SelectScope[Mentioned]) -> tuple[SelectScope[Mentioned], list[Text]]:
        """Return the scope of the plan's exits, and the tables to define in the plan's own WITH clause."""

    # ---- plans ---------------------------------------------------------------------------------------------------

    def query(
        self,
        plan: Plan,
        scope: SelectScope[Mentioned],
        columns: ColumnsOf = no_columns,
        exits: Sequence[Exit] | None = None,
        distinct: bool = False,
    ) -> Text | None:
        """Return a query of the plan's answers, or of some exits: their columns, or 1 if no columns are needed."""
        scope, tables = self.entered(plan, scope)
        arms = self.arms(plan.exits if exits is None else exits, scope, columns)
        recursion: Text = ("WITH RECURSIVE ", *joined(", ", tables), " ") if tables else ()
        return (*recursion, *union(arms, distinct)) if arms else None

    def arms(self, ends: Iterable[Exit], scope: SelectScope[Mentioned], columns: ColumnsOf = no_columns) -> list[Text]:
        return _some(self.arm(end, columns(end), scope) for end in ends)

    def arm(self, end: Exit, columns: Sequence[Column], scope: SelectScope[Mentioned]) -> Text | None:
        return self.select(end.branch, columns or [("1",)], scope)

    def with_tables(
        self, plan: Plan, scope: SelectScope[Mentioned], goals: str, answers: str
    ) -> tuple[SelectScope[Mentioned], list[Text]]:
        """Return the scope of the plan's exits, and its recursive tables under these names, if they have first rows."""
        tables = []
        made = self.goals(plan, scope, goals) if plan.seeds else None
        if made is not None:
            scope = scope._replace(goals=goals)
            tables.append(made)
        made = self.answers(plan, scope, answers) if plan.answers else None
        if made is not None:
            scope = scope._replace(answers=answers)
            tables.append(made)
        return scope, tables

    def goals(self, plan: Plan, scope: SelectScope[Mentioned], name: str) -> Text | None:
        layout = self.layout(plan, Goals)

        def row(jump: Jump, scope: SelectScope[Mentioned]) -> Text | None:
            return self._row(layout, plan.tag_of[jump.state], jump.branch, goal_terms(jump), scope)

        step = scope._replace(goals=name, lateral=Goals if self.dialect.recursive_arms_join else None)
        seeds, moves = [row(jump, scope) for jump in plan.seeds], [row(jump, step) for jump in plan.moves]
        return self.recursive(name, scope.row, ["tag", *layout.names], seeds, moves)

    def answers(self, plan: Plan, scope: SelectScope[Mentioned], name: str) -> Text | None:
        layout = self.layout(plan, Answers)

        def row(arm: AnswerArm, scope: SelectScope[Mentioned]) -> Text | None:
            branch = _answers_first(arm.exit.branch) if arm.is_recursive else arm.exit.branch
            return self._row(layout, arm.tag, branch, answer_terms(arm), scope)

        step = scope._replace(answers=name, lateral=Answers if self.dialect.recursive_arms_join else None)
        seeds = [row(arm, scope) for arm in plan.answers if not arm.is_recursive]
        arms = [row(arm, step) for arm in plan.answers if arm.is_recursive]
        return self.recursive(name, scope.row, ["tag", *layout.names], seeds, arms)

    def _row(
        self, layout: TableLayout, tag: int, branch: Branch, terms: Mapping[str, Term], scope: SelectScope[Mentioned]
    ) -> Text | None:
        return self.select(branch, [self.tag(tag), *layout.cells(tag, terms)], scope)

    def tag(self, tag: int) -> Text:
        return (str(tag),)

    def recursive(
        self, name: str, row: str, columns: list[str], seeds: Iterable[Text | None], arms: Iterable[Text | None]
    ) -> Text | None:
        """Return a recursive table of first rows, and of steps from any of its rows; None without first rows."""
        first, following = ([settled(each) for each in merged(_some(some))] for some in (seeds, arms))
        if not first:
            return None
        steps = self.dialect.steps(name, row, columns, following)
        rows = [*in_chunks(first, " UNION ", len(steps)), *steps]
        return (f"{name}({', '.join(columns)}) AS (", *joined(" UNION ", rows), ")")

    # ---- branches -------------------------------------------------------------------------------------------------

    def select(self, branch: Branch, columns: Sequence[Column], scope: SelectScope[Mentioned]) -> Text | None:
        """Return a SELECT of columns from a branch; None if it can have no rows."""
        tick()
        return self.selected(branch, columns, self.named(branch, scope))

    def named(self, branch: Branch, scope: SelectScope[Mentioned]) -> SelectScope[Mentioned]:
        """Return the scope extended by the branch's sources."""
        names, seen = dict(scope.names), dict(scope.seen)
        scope = scope._replace(names=names, seen=seen)
        for source in branch.sources:
            alias = scope.row if scope.is_outer(source) else f"{self.letter(source)}{len(names)}"
            seen[source.number] = self.seen(source, alias, branch, scope)
            names[source.number] = alias
        return scope

    def selected(self, branch: Branch, columns: Sequence[Column], scope: SelectScope[Mentioned]) -> Text | None:
        """Like `select`, in a scope that already has the branch's sources."""
        shown = [self.column(each, scope) for each in columns]
        written = _some(shown)
        read = self.read(branch, columns, scope) if len(written) == len(shown) else None
        if read is None:
            return None
        tables, tests = read
        text: Text = ("SELECT ", *joined(", ", written))
        if tables:
            text = (*text, self.reads, *joined(" CROSS JOIN ", tables))
        elif tests and self.dialect.dual:
            text = (*text, self.dialect.dual)
        return fused((*text, " WHERE ", *joined(" AND ", tests)) if tests else text)

    def column(self, column: Column, scope: SelectScope[Mentioned]) -> Text | None:
        """Return the SQL of a column; None if it can have no such value."""
        match column:
            case Written(text):
                return text
            case Shown():
                return self.shown(column, scope)
        return column

    def read(
        self, branch: Branch, columns: Sequence[Column], scope: SelectScope[Mentioned]
    ) -> tuple[list[Text], list[Text]] | None:
        """Return the tables to join and the tests of their rows; None if a table or test lets no row through."""
        tables: list[Text] = []
        tests: list[Text] = []
        for source in branch.sources:
            if not scope.is_outer(source):
                table = self.source(source, branch, scope)
                if table is None:
                    return None
                tables.append((*table, f" {scope.names[source.number]}"))
            tests += self.row_tests(source, branch, scope)
        for condition in sorted(branch.conditions, key=_is_of_names):  # so that more arms differ in names only
            verdict = self.condition(condition, scope)
            if verdict is False:
                return None
            if verdict is not True:
                tests.append(verdict)
        return tables, tests

    def source(self, source: PlanSource, branch: Branch, scope: SelectScope[Mentioned]) -> Text | None:
        """Return the table of a source; None if it has no rows."""
        match source:
            case Goals(number):
                table = scope.tables.get(number, scope.goals)
            case Answers(number):
                table = scope.tables.get(number, scope.answers)
            case _:
                return self.table(source, branch, scope)
        return None if table is None else (table,)

    # ---- conditions -----------------------------------------------------------------------------------------------

    def condition(self, condition: Condition, scope: SelectScope[Mentioned]) -> Text | bool:
        """Return the test, or a bool if its outcome is certain."""
        match condition:
            case Same(Col() as left, Const(text)):
                return self.among(left, (text,), scope)
            case Same(left, right):
                return self.equal(left, right, scope)
            case Member(operand, ids):
                return self.among(operand, ids, scope)
            case Cmp("!=", left, right):
                return self.unequal(left, right, scope)
            case Cmp("<" | "<=" | ">" | ">=" as operator, left, right):
                return joined(f" {operator} ", (self.number(side, scope) for side in (left, right)))
            case Tagged(source, tag):
                return (f"{scope.names[source]}.tag = {tag}",)
            case Holds(plan, negated):
                return self.holds(plan, negated, scope)
        raise AssertionError(f"this renderer has no text for {condition}")

    def holds(self, plan: Plan, negated: bool, scope: SelectScope[Mentioned]) -> Text | bool:
        """Return the test that the plan has an answer (if negated: none)."""
        query = self.query(plan, scope)
        return negated if query is None else ("NOT EXISTS (" if negated else "EXISTS (", *query, ")")


def goal_terms(jump: Jump) -> dict[str, Term]:
    """Return the keys of a goal, by the plan's column names."""
    return {f"c{index}": key for index, key in enumerate(jump.keys)}


def answer_terms(arm: AnswerArm) -> dict[str, Term]:
    """Return the keys of the goal and the answer columns, by the plan's column names."""
    keys = {f"c{index}": key for index, key in enumerate(arm.keys)}
    return {**keys, **{f"o{index}": out for index, out in enumerate(arm.exit.outs)}}


def _answers_first(branch: Branch) -> Branch:
    """Put answers first and goals last: the new answer drives the recursive step, and its goal is only looked up."""
    rank = {Answers: 0, Goals: 2}
    return Branch(tuple(sorted(branch.sources, key=lambda source: rank.get(type(source), 1))), branch.conditions)


def _is_of_names(condition: Condition) -> bool:
    match condition:
        case Same(Col(), Const()) | Member(Col()):
            return True
    return False


def _some(texts: Iterable[Text | None]) -> list[Text]:
    """Return the texts that are not None."""
    return [each for each in texts if each is not None]
