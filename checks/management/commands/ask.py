"""A question from the command line."""

from typing import Any

from django.core.management.base import CommandParser

from checks.asking import ask
from checks.asking.advice import advice_on_question
from checks.asking.askers import Trusted
from checks.asking.query import allow
from checks.asking.question import Asked, Page, Question, by_ids
from checks.engine.compile import Compiled
from facts.notation import action_from_text, fact_from_text, value_from_text
from policy.active import active_program
from policy.management.command import PolicyCommand, add_as_of, moment_asked
from policy.models import Environment
from policy.values import STRING

PAGE = 10_000


class Command(PolicyCommand):
    help = "Ask what the interface answers: authorize, actions or list. Values are written as `User:alice`."

    def add_arguments(self, parser: CommandParser) -> None:
        kinds = parser.add_subparsers(dest="kind", required=True, metavar="authorize|actions|list")
        for kind, values in (
            ("authorize", ("actor", "action", "resource")),
            ("actions", ("actor", "resource")),
            ("list", ("actor", "action", "resource_type")),
        ):
            asked = kinds.add_parser(kind)
            super().add_arguments(asked)
            for name in values:
                asked.add_argument(name, metavar=name.upper())
            asked.add_argument("--context", action="append", default=[], metavar="FACT", help="a fact for this one")
            add_as_of(asked)
            asked.add_argument("--plan", action="store_true", help="print the plan and the SQL, and ask nothing")

    def act(self, environment: Environment, *, plan: bool, as_of: str | None, **options: Any) -> None:
        question = _question(**options)
        asker = Trusted(environment.pk)
        if plan:
            compiled, unused = ask.plan(asker, question, Page(PAGE) if options["kind"] == "list" else None)
            lines, advice = [shown_plan(compiled)], []
        else:
            found = ask.answer(asker, question, moment=moment_asked(environment, as_of))
            unused, lines = found.unused, _answer_lines(found, options["kind"])
            advice = [] if found.holds else _advice(environment, question)
        for sentence in (*unused.sentences, *advice):
            self.stderr.write(sentence)
        self.stdout.write("".join(f"{line}\n" for line in lines), ending="")


def _advice(environment: Environment, question: Question) -> list[str]:
    program = active_program(environment.pk)
    return advice_on_question(program, question) if program else []


def _answer_lines(found: ask.Answered, kind: str) -> list[str]:
    if kind == "authorize":
        return ["allowed" if found.holds else "denied"]
    return ["*" if name is None else name for (name,) in sorted(found.of_one, key=by_ids)]


def _question(*, kind: str, actor: str, context: list[str], **options: Any) -> Question:
    facts = tuple(fact_from_text(text) for text in context)
    action = asked_action(options["action"]) if kind != "actions" else Asked(STRING)
    resource = Asked(options["resource_type"]) if kind == "list" else asked_value(options["resource"])
    outs = {"authorize": (), "actions": ("action",), "list": ("resource",)}[kind]
    return allow(asked_value(actor), action, resource, outs, facts)


def asked_value(text: str) -> Asked:
    found = value_from_text(text)
    return Asked(found.type, (found.id,))


def asked_action(text: str) -> Asked:
    return Asked(STRING, (action_from_text(text),))


def shown_plan(compiled: Compiled) -> str:
    """Return the plans, then each statement with what its parameters are."""
    lines = [str(root) for root in compiled.roots]
    if compiled.statement is None:
        return "\n".join([*lines, "", "no statement: nothing can be true, whatever the facts"])
    for rounds in compiled.rounds:
        each = [rounds.seed, *(step.statement for step in rounds.steps), *(exits for _, exits in rounds.exits)]
        lines += ["", f"rounds {rounds.name}", *(statement.sql for statement in each if statement)]
    parameters = [f"  {number}: {parameter}" for number, parameter in enumerate(compiled.statement.parameters, 1)]
    return "\n".join([*lines, "", compiled.statement.sql, "", *parameters])
