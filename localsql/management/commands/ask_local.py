"""Print the SQL that the local SQL endpoints return, formatted."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import sqlglot
from django.core.management.base import CommandError, CommandParser
from sqlglot.errors import SqlglotError

from checks.asking.advice import advice_on_question
from checks.asking.ask import Asker, Trusted
from checks.asking.question import Asked, Question, allow
from checks.explain.explain import Explanation, explain, explanation_to_text
from facts.wire import Fact, action_from_text, fact_from_text, value_from_text
from localsql import asking
from localsql.asking import authorize
from localsql.bindings import Binding, bindings_from_text
from localsql.errors import NotExpressible
from localsql.management.commands.check_bindings import naming
from localsql.sync.config import ConfigContext, config_from_text
from localsql.sync.run import fact_of
from localsql.sync.sources import SourceRow, SqlConnection, connected
from policy.active import active_program
from policy.management.command import DENIED, UNKNOWN, PolicyCommand, text_of_file
from policy.models import Environment
from policy.publishing import filename_of
from policy.values import PRIMITIVES, STRING

KINDS = {
    "authorize": "Print a statement that returns whether an actor may do an action on a resource.",
    "actions": "Print a statement that returns the actions that an actor may do on a resource.",
    "list": "Print a condition on COLUMN that selects the resources on which an actor may do an action.",
}
VALUES = {
    "authorize": ("actor", "action", "resource"),
    "actions": ("actor", "resource"),
    "list": ("actor", "action", "resource_type", "column"),
}


class Command(PolicyCommand):
    help = "Print the SQL that answers a request in your own database. Values are written as User:alice."
    failure_status = UNKNOWN

    def add_arguments(self, parser: CommandParser) -> None:
        for kind, asked in self.subcommands(parser, "kind", KINDS).items():
            super().add_arguments(asked)
            for name in VALUES[kind]:
                asked.add_argument(name, metavar=name.upper())
            asked.add_argument("--bindings", metavar="FILE", help="Data bindings (default: stored facts only).")
            asked.add_argument(
                "--context", action="append", default=[], metavar="FACT", help="Context fact. Repeatable."
            )
            raw = asked.add_argument(
                "--raw", action="store_true", help="Print the SQL unformatted, as the endpoints return it."
            )
            if kind == "authorize":
                explain = asked.add_argument(
                    "--explain",
                    action="store_true",
                    dest="explains",
                    help="Print the proof, or why access was denied; needs --bindings and --database.",
                )
                database = asked.add_argument(
                    "--database", metavar="URL", help="Database with the bound tables, as in DATABASE_URL."
                )
                self.only_with(database, explain)
                self.never_with(raw, explain)

    def act(self, environment: Environment, *, bindings: str | None, **options: Any) -> None:
        with naming(bindings):
            self._answer(environment, bindings, **options)

    def _answer(self, environment: Environment, bindings: str | None, kind: str, raw: bool, **options: Any) -> None:
        text = text_of_file(bindings) if bindings is not None else None
        asker = Trusted(environment.pk)
        question = _question(kind, **options)
        if options.get("explains"):
            self._explain(environment, question, text, options["database"])
            return
        if kind == "authorize":
            local = asking.authorize(asker, question, text)
        elif kind == "actions":
            local = asking.actions(asker, question, text)
        else:
            local = asking.filtered(asker, question, text, options["column"])
        program = active_program(environment.pk)
        for sentence in (*local.unused.sentences, *(advice_on_question(program, question) if program else ())):
            self.stderr.write(sentence)
        self.stdout.write(local.sql if raw else formatted(local.sql, bindings_from_text(text).dialect.parser))

    def _explain(self, environment: Environment, question: Question, text: str | None, database: str | None) -> None:
        if text is None or not database:
            raise CommandError("--explain needs --bindings FILE and --database URL.")
        found = explained(Trusted(environment.pk), question, text, database)
        self.status = UNKNOWN if found.warning else 0 if found.allowed else DENIED
        filename = filename_of(environment.pk, found.version)
        for line in explanation_to_text(found, filename, self.is_coloured, given="row or context fact"):
            self.stdout.write(line)


def _question(kind: str, *, actor: str, context: list[str], **options: Any) -> Question:
    action = Asked(STRING) if kind == "actions" else Asked(STRING, (action_from_text(options["action"]),))
    resource = Asked(options["resource_type"]) if kind == "list" else _value(options["resource"])
    outs = {"authorize": (), "actions": ("action",), "list": ("resource",)}[kind]
    return allow(_value(actor), action, resource, outs, tuple(fact_from_text(text) for text in context))


def _value(text: str) -> Asked:
    found = value_from_text(text)
    return Asked(found.type, (found.id,))


def formatted(sql: str, dialect: str) -> str:
    """Return the SQL formatted for reading; the endpoints never format it."""
    try:
        return sqlglot.parse_one(sql, dialect=dialect).sql(dialect=dialect, pretty=True)
    except SqlglotError:
        return sql


# ---- explaining ----------------------------------------------------------------------------------------------------
# Explain decisions over bound tables: read the rows that matter, and explain with them as context facts.
#
# Rows are found from the ids of the request: first rows that contain one of them, then rows that contain an id of
# those, and so on. The decision itself is made by local SQL in the caller's database. An explanation that comes to
# another decision is refused: rows that it did not read would have mattered.

MOST_ROWS = 10_000
AT_ONCE = 200  # ids in one statement
NO_IDS = frozenset(("", "*"))


def explained(asker: Asker, question: Question, bindings: str, database: str) -> Explanation:
    """Explain the answer to a question about one actor, action and resource, over the tables at a database URL."""
    config = config_from_text(bindings, ConfigContext(connection=database))
    local = authorize(asker, question, bindings)
    tables = {each.asked: each.database for each in config.patterns if isinstance(each.asked, Binding)}
    if len({*tables.values()}) != 1:
        raise NotExpressible("the bindings must have tables of one database")
    ids = {(asked.type, asked.one) for asked in question.variables.values()}
    with connected(next(iter(tables.values()))) as connection:
        facts = BoundRows(list(tables), connection).connected_to(ids)
        ((holds,),) = connection.execute(_escaped(local.sql, connection))
    found = explain(asker, question._replace(context=(*question.context, *facts)))
    if found.allowed != bool(holds):
        raise NotExpressible(
            f"the decision cannot be explained by the {len(facts):,} rows that are connected to the actor and the "
            "resource; pass the rows that matter as context facts instead"
        )
    return replace(found, warning=local.warning)


class BoundRows:
    """The facts of bound tables, read from the ids that they contain."""

    def __init__(self, bindings: Sequence[Binding], connection: SqlConnection):
        self.bindings, self.connection = bindings, connection
        self.facts: dict[Fact, None] = {}

    def connected_to(self, ids: set[tuple[str, str]]) -> list[Fact]:
        """Return the facts that contain one of the typed ids, or an id of such facts, up to `MOST_ROWS`."""
        known = {each for each in ids if each[0] not in PRIMITIVES}
        new = known
        for binding in self.bindings:
            if not binding.key.columns:
                self._take(binding, self.connection.execute(f"{self._statement(binding)} WHERE c0 IS NOT NULL LIMIT 1"))
        while new and len(self.facts) < MOST_ROWS:
            before = len(self.facts)
            for binding in self.bindings:
                for row in self._with(binding, new):
                    self._take(binding, [row])
            found = list(self.facts)[before:]
            new = {(arg.type, arg.id) for fact in found for arg in fact.args if arg.type not in PRIMITIVES} - known
            known |= new
        return list(self.facts)

    def _with(self, binding: Binding, ids: set[tuple[str, str]]) -> Iterator[SourceRow]:
        """Yield the rows with one of the ids in a column of its type."""
        for place, index in enumerate(binding.key.columns):
            wanted = sorted(text for name, text in ids if name == binding.signature.types[index])
            for start in range(0, len(wanted), AT_ONCE):
                some = wanted[start : start + AT_ONCE]
                marks = ", ".join([self.connection.mark] * len(some))
                most = max(MOST_ROWS - len(self.facts), 0)
                rows = f"{self._statement(binding)} WHERE __r.c{place} IN ({marks}) LIMIT {most}"
                yield from self.connection.execute(rows, some)

    def _statement(self, binding: Binding) -> str:
        return f"SELECT * FROM ({_escaped(self.connection.reading(binding), self.connection)}) __r"

    def _take(self, binding: Binding, rows: Sequence[SourceRow]) -> None:
        for row in rows:
            found = tuple([each.decode() if isinstance(each, bytes) else each for each in row if each is not None])
            if len(found) == len(row) and not NO_IDS.intersection(found):  # others are no facts
                self.facts[fact_of(binding.key, found if binding.key.columns else ())] = None


def _escaped(statement: str, connection: SqlConnection) -> str:
    """Double each `%` for drivers that read it as a placeholder."""
    return statement.replace("%", "%%") if connection.mark == "%s" else statement
