"""Answer one question about many rows of values in one statement: its parameters become columns of the rows.

    may User:v0 "read" Doc:v1    ->    SELECT r.n, (SELECT EXISTS (… f0.a0 = r.v1 …)) FROM (<rows>) r

The plan is that of the question about one row. Its WITH tables stand inside the expression, which the database
evaluates for each row. Questions of several kinds are arms of one union; the number `n` identifies the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from checks.engine.compile import Compiled, KnownFacts, Rendered, Shape, rendered
from checks.engine.rules.clauses import Other, Slot
from checks.engine.rules.ruleset import RuleSet
from checks.engine.sql.dialects import Dialect
from checks.engine.sql.render import inline_table, with_tables
from checks.engine.sql.text import Piece, Statement, Text, finished, joined
from policy.rules.program import Signature

COLUMNS = 2  # columns of an arm: the number of the row, and the answer


@dataclass(frozen=True)
class AnswerExpression:
    """The SQL expression of a question's answer for one row: whether there is an answer, or all answers as JSON.

    Without a `text`, the question cannot be true, whatever the facts.
    """

    columns: tuple[str, ...]  # of the row: the question's slots
    text: Text = ()
    is_guarded: bool = False
    weight: int = 0  # number of tables it reads


def expression_of(
    rules: RuleSet,
    shape: Shape,
    columns: tuple[str, ...],
    dialect: Dialect,
    known: KnownFacts,
) -> AnswerExpression | None:
    """Return the shape's single question as an expression; None if its recursion must be evaluated in rounds."""
    found = rendered(rules, shape, dialect, known)
    if found.renderer is None:
        return AnswerExpression(columns)
    if found.renderer.rounds:
        return None
    whole = _within(found, shape, dialect)
    text = tuple([_of_row(piece, columns) for piece in whole])
    (root,) = found.plans
    return AnswerExpression(columns, text, bool(root.guarded or root.grounded), root.plan.weight)


def _within(found: Rendered, shape: Shape, dialect: Dialect) -> Text:
    """Return a SELECT of a single value: whether there is an answer, or all answers as JSON."""
    assert found.renderer is not None, "something can be true"
    defined = found.renderer.defined(found.tables)
    if not shape.width:
        return (*with_tables(defined), *found.rows)
    columns = ", ".join(f"c{index}" for index in range(Compiled(shape, found.plans, None).columns))
    rows: Text = (f"found({columns}) AS (", *found.rows, ")")
    return (*with_tables([*defined, rows]), f"SELECT {dialect.gathered(columns)} FROM found")


def _of_row(piece: Piece, columns: tuple[str, ...]) -> Piece:
    match piece:
        case Slot(name) | Other(name) if name in columns:
            return f"r.{name}"
    return piece


def statement_of(
    expressions: Sequence[AnswerExpression],
    dialect: Dialect,
    inline: frozenset[Signature],
    around: Callable[[Text, int], Text],
) -> Statement:
    """Return one statement for all expressions; each takes its rows from a parameter of its own (see `slot_of`)."""
    arms = [_arm(each, slot_of(place), dialect) for place, each in enumerate(expressions)]
    rows = joined(" UNION ALL ", arms)
    return finished((*with_tables(inline_table(dialect, inline)), *around(rows, COLUMNS)), dialect.placeholder)


def slot_of(place: int) -> str:
    return f"rows{place}"


def _arm(expression: AnswerExpression, slot: str, dialect: Dialect) -> Text:
    rows = dialect.table((Slot(slot),), ["n", *expression.columns])
    return ("SELECT r.n, (", *expression.text, ") AS o0 FROM (", *rows, ") r")
