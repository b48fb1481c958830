"""The engine over facts in memory, without anything else of the service."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from checks.asking.ask import LiveSession
from checks.asking.question import Page, Question, inline_rows
from checks.engine.compile import Compiled, Root, Shape, compiled
from checks.engine.plan.draft import IsNarrow, nowhere
from checks.engine.rules.clauses import Call, Const, Other, Slot, Var
from checks.engine.rules.ruleset import RuleSet
from checks.engine.sql.rounds import evaluate_all
from checks.engine.sql.text import Dialect, SQLite, Statement
from facts.wire import Fact
from policy.rules import compile_text
from policy.rules.program import Signature
from policy.values import STRING

TABLE = """
CREATE TABLE authz_fact (sig INTEGER, a0 TEXT, a1 TEXT, a2 TEXT, a3 TEXT, a4 TEXT,
                   PRIMARY KEY (sig, a0, a1, a2, a3, a4)) WITHOUT ROWID;
CREATE INDEX by_a1 ON authz_fact (sig, a1, a2, a0);
CREATE INDEX by_a2 ON authz_fact (sig, a2, a1, a0);
"""
NOW = 1_000_000
program_of = lru_cache(100)(compile_text)  # many engines are made of one policy, and nothing changes a program


@dataclass(frozen=True)
class Known:
    """Facts of any signature may be stored, and none of them ends."""

    of: Callable[[Signature], int]
    knows: Callable[[Signature], bool] = lambda signature: True
    is_narrow: IsNarrow = nowhere

    def may_end(self, _: Signature) -> bool:
        return False


class Engine:
    def __init__(self, policy: str, dialect: Dialect | None = None, patience: float = 0):
        self.rules = RuleSet(program_of(policy), patience=patience)
        self.dialect = dialect or SQLite()
        self.is_narrow: IsNarrow = nowhere
        self.numbers: dict[Signature, int] = {}
        self.database = sqlite3.connect(":memory:")
        self.database.executescript(TABLE)

    def number(self, signature: Signature) -> int:
        return self.numbers.setdefault(signature, len(self.numbers) + 1)

    def store(self, predicate: str, *args: str) -> None:
        values = [arg.partition(":")[::2] if ":" in arg else (STRING, arg) for arg in args]
        self.store_all(Signature(predicate, tuple(kind for kind, _ in values)), [tuple(text for _, text in values)])

    def store_all(self, signature: Signature, rows: Iterable[tuple[str, ...]]) -> None:
        number = self.number(signature)
        whole = [(number, *ids, *[""] * (5 - len(ids))) for ids in rows]
        insert = "INSERT OR IGNORE INTO authz_fact (sig, a0, a1, a2, a3, a4) VALUES (?, ?, ?, ?, ?, ?)"
        self.database.executemany(insert, whole)

    # ---- compiled -----------------------------------------------------------------------------------------------

    def compiled(self, kind: str, action: str, actor: str = "User", resource: str = "Doc") -> Compiled:
        name = Const(action) if action in self.rules.program.names else Other("action")
        args, width = {
            "authorize": ((Slot("actor"), name, Slot("resource")), 0),
            "list": ((Slot("actor"), name, Var(0)), 1),
            "actions": ((Slot("actor"), Var(0), Slot("resource")), 1),
            "actors": ((Var(0), name, Slot("resource")), 1),
        }[kind]
        return self.compiled_for(Shape((Root((Call("allow", (actor, STRING, resource), args),)),), width))

    def compiled_for(self, shape: Shape, knows: Callable[[Signature], bool] = lambda signature: True) -> Compiled:
        return compiled(self.rules, shape, self.dialect, Known(self.number, knows, self.is_narrow))

    def shape(
        self, questions: Sequence[Question], context: Sequence[Fact] = (), page: Page | None = None
    ) -> tuple[Shape, dict[str, object]]:
        """The shape that the service makes of questions about the same facts, and the values that it takes out."""
        slots: dict[str, object] = {"now": NOW}
        session = LiveSession(1, 1)
        session.names = self.rules.program.names
        key = session.key(questions, context, page, slots)
        if context:
            slots["facts"] = inline_rows(context, self.number)
        return key.shape(range(len(questions))), slots

    # ---- asked --------------------------------------------------------------------------------------------------

    def ask(self, kind: str, action: str, resource_type: str = "Doc", **slots: object) -> object:
        question = self.compiled(kind, action, resource=resource_type)
        rows = self.rows(question, {"action": action, "now": 0, **slots})
        if kind == "authorize":
            return bool(rows and rows[0][0])
        return sorted(row[0] for row in rows)

    def rows(self, question: Compiled, slots: dict[str, object]) -> list[tuple]:
        """What the statement answers, after its rounds; nothing where there is none."""
        known = evaluate_all(question.rounds, self._run, slots)
        return [] if question.statement is None else self._run(question.statement, known)

    def _run(self, statement: Statement, slots: dict[str, object]) -> list[tuple]:
        return self.database.execute(statement.sql, statement.values(slots | statement.constants)).fetchall()
