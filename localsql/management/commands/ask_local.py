"""Print the SQL that the local SQL endpoints return, formatted."""

from typing import Any

import sqlglot
from django.core.management.base import CommandError, CommandParser
from sqlglot.errors import SqlglotError

from checks.asking.advice import advice_on_question
from checks.asking.ask import Trusted
from checks.asking.question import Asked, Question, allow
from checks.explain.explain import explanation_to_text
from facts.notation import action_from_text, fact_from_text, value_from_text
from localsql import asking
from localsql.bindings import bindings_from_text
from localsql.explaining import explained
from localsql.management.commands.check_bindings import text_named
from policy.active import active_program
from policy.management.command import PolicyCommand
from policy.models import Environment, PolicyVersion
from policy.values import STRING

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

    def add_arguments(self, parser: CommandParser) -> None:
        for kind, asked in self.subcommands(parser, "kind", KINDS).items():
            super().add_arguments(asked)
            for name in VALUES[kind]:
                asked.add_argument(name, metavar=name.upper())
            asked.add_argument("--bindings", metavar="FILE", help="Data bindings (default: stored facts only).")
            asked.add_argument(
                "--context", action="append", default=[], metavar="FACT", help="Context fact. Repeatable."
            )
            if kind == "authorize":
                asked.add_argument(
                    "--explain",
                    action="store_true",
                    dest="explains",
                    help="Print the proof, or why access was denied; needs --bindings and --database.",
                )
                asked.add_argument(
                    "--database", metavar="URL", help="Database with the bound tables, as in DATABASE_URL."
                )
            asked.add_argument(
                "--raw", action="store_true", help="Print the SQL unformatted, as the endpoints return it."
            )

    def act(self, environment: Environment, *, kind: str, bindings: str | None, raw: bool, **options: Any) -> None:
        text = text_named(bindings) if bindings is not None else None
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
        versions = PolicyVersion.objects.filter(environment=environment, number=found.version or 0)
        filename = versions.values_list("filename", flat=True).first()
        for line in explanation_to_text(found, filename or "", self.stdout.isatty(), given="row or context fact"):
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
