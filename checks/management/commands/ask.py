"""Check access, list actions, resources or actors, and explain decisions."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from django.core.management.base import CommandParser

from checks.asking import ask
from checks.asking.advice import advice_on_question, typed_values
from checks.asking.ask import Trusted
from checks.asking.question import Asked, Page, Question, allow
from checks.engine.compile import AnswerRow, Compiled
from checks.explain.explain import explain, explanation_to_text
from checks.explain.tree import shown_value
from facts.wire import action_from_text, fact_from_text, name_from_json, value_from_text
from policy.active import active_program, program_of_version
from policy.core.pagination import natural_key
from policy.errors import AuthzError
from policy.language.source import spelled_out
from policy.management.command import DENIED, UNKNOWN, PolicyCommand, add_as_of, moment_asked, number
from policy.models import Environment
from policy.moments import Moment
from policy.publishing import filename_of
from policy.rules.program import Program
from policy.values import STRING, Value

PAGE = 10_000
KINDS = {
    "authorize": "Check whether an actor may do an action on a resource.",
    "actions": "List the actions that an actor may do on a resource.",
    "list": "List the resources on which an actor may do an action.",
    "who": "List the actors that may do an action on a resource.",
}
VALUES = {
    "authorize": ("actor", "action", "resource"),
    "actions": ("actor", "resource"),
    "list": ("actor", "action", "resource_type"),
    "who": ("action", "resource"),
}


class Command(PolicyCommand):
    help = (
        "Check access, or list actions, resources or actors. Values are written as User:alice. Exits with 1 if access "
        "is denied, and with 2 if the request is invalid or names a type or an action that the policy does not have."
    )
    failure_status = UNKNOWN

    def add_arguments(self, parser: CommandParser) -> None:
        for kind, asked in self.subcommands(parser, "kind", KINDS).items():
            super().add_arguments(asked)
            for name in VALUES[kind]:
                asked.add_argument(name, metavar=name.upper())
            asked.add_argument(
                "--context", action="append", default=[], metavar="FACT", help="Context fact. Repeatable."
            )
            if kind == "who":
                asked.add_argument("--actor-type", metavar="TYPE", help="List only actors of this type.")
            as_of = add_as_of(asked)
            version = asked.add_argument(
                "--policy-version", type=number, metavar="N", help="Use this policy version (default: the active one)."
            )
            how = asked.add_mutually_exclusive_group()
            plan = how.add_argument(
                "--plan", action="store_true", help="Print the query plan and its SQL; do not run it."
            )
            self.never_with(plan, as_of, version)
            if kind == "authorize":
                how.add_argument(
                    "--explain", action="store_true", dest="explains", help="Print the proof, or why access was denied."
                )

    def act(
        self, environment: Environment, *, plan: bool, as_of: str | None, policy_version: int | None, **options: Any
    ) -> None:
        moment = moment_asked(environment, as_of, policy_version=policy_version)
        asker, program = Trusted(environment.pk), _program(environment, moment)
        if options["kind"] == "who" and options["actor_type"] is None:
            options["actor_type"] = _actor_types(program)
        else:
            options["actor_type"] = [options.get("actor_type")]
        questions = _questions(program, **options)
        if options.get("explains"):
            is_allowed = self._explain(asker, questions[0], moment)
            self.status = _status(options["kind"], is_allowed, [] if is_allowed else _advice(program, questions))
            return
        if plan:
            page = Page(PAGE) if options["kind"] == "list" else None
            plans = [ask.plan(asker, question, page) for question in questions]
            unused, lines, advice = plans[0][1], [shown_plan(compiled) for compiled, _ in plans], []
        else:
            found = ask.answered(asker, questions, questions[0].context if questions else (), moment=moment)
            unused, lines = found.unused, _answer_lines(found, options["kind"])
            advice = [] if found.holds else _advice(program, questions)
            self.status = _status(options["kind"], found.holds, advice)
        for sentence in (*unused.sentences, *advice):
            self.stderr.write(sentence)
        self.stdout.write("".join(f"{line}\n" for line in lines), ending="")

    def _explain(self, asker: Trusted, question: Question, moment: Moment | None) -> bool:
        explanation = explain(asker, question, moment)
        filename = filename_of(asker.environment_id, explanation.version)
        for line in explanation_to_text(explanation, filename, self.is_coloured):
            self.stdout.write(line)
        return explanation.allowed


def _status(kind: str, holds: bool, advice: list[str]) -> int:
    """Return the exit status, as `grep` has it: 1 for denied, 2 if the request has words that the policy lacks."""
    if advice:
        return UNKNOWN
    return DENIED if kind == "authorize" and not holds else 0


def _program(environment: Environment, moment: Moment | None) -> Program | None:
    """Return the program of the moment's policy, or of the active one; None without a policy."""
    if moment is None or moment.version is None:
        return active_program(environment.pk)
    return program_of_version(moment.version)


def _advice(program: Program | None, questions: Sequence[Question]) -> list[str]:
    found = (sentence for each in questions for sentence in advice_on_question(program, each)) if program else ()
    return list(dict.fromkeys(found))


def _actor_types(program: Program | None) -> list[str]:
    types = [name for name, each in program.types.items() if each.kind == "actor"] if program else []
    if not types:
        raise AuthzError("The policy declares no actor type. Specify one with --actor-type.")
    return sorted(types)


def _answer_lines(found: ask.Answered, kind: str) -> list[str]:
    if kind == "authorize":
        return ["allowed" if found.holds else "denied"]
    if kind == "who":
        each = zip(found.questions, found.of_each)
        return [_shown(question, name) for question, rows in each for name in _in_order(rows)]
    return ["*" if name is None else spelled_out(name) for name in _in_order(found.of_one)]


def _in_order(rows: Iterable[AnswerRow]) -> list[str | None]:
    return sorted((name for (name,) in rows), key=natural_key)


def _shown(question: Question, name: str | None) -> str:
    type_name = question.variables["actor"].type
    return f"{type_name}:*" if name is None else shown_value(Value(type_name, name))


def _typed(program: Program | None, kind: str, text: str) -> Sequence[str]:
    """Return suggestions for an actor or a resource that was written without a type."""
    return typed_values(program, kind, text) if program else ()


def _questions(
    program: Program | None, *, kind: str, context: list[str], actor_type: list[str], **options: Any
) -> list[Question]:
    """Return the questions: for `who` one for each actor type, otherwise one."""
    facts = tuple(fact_from_text(text) for text in context)
    action = Asked(STRING, (action_from_text(options["action"]),)) if kind != "actions" else Asked(STRING)
    if kind == "list":
        resource = Asked(name_from_json(options["resource_type"], "RESOURCE_TYPE"))
    else:
        resource = Asked.of(value_from_text(options["resource"], partial(_typed, program, "resource")))
    outs = {"authorize": (), "actions": ("action",), "list": ("resource",), "who": ("actor",)}[kind]
    if kind == "who":
        actors = [Asked(name_from_json(name, "--actor-type")) for name in actor_type]
    else:
        actors = [Asked.of(value_from_text(options["actor"], partial(_typed, program, "actor")))]
    return [allow(actor, action, resource, outs, facts) for actor in actors]


def shown_plan(compiled: Compiled) -> str:
    """Return the plans, the statements of rounds, and the main statement with its parameters."""
    lines = [str(root) for root in compiled.roots]
    if compiled.statement is None:
        return "\n".join([*lines, "", "No statement: the answer is always empty, whatever facts are stored."])
    for rounds in compiled.rounds:
        each = [rounds.seed, *(step.statement for step in rounds.steps), *(exits for _, exits in rounds.exits)]
        lines += ["", f"rounds {rounds.name}", *(statement.sql for statement in each if statement)]
    parameters = [f"  {number}: {parameter}" for number, parameter in enumerate(compiled.statement.parameters, 1)]
    return "\n".join([*lines, "", compiled.statement.sql, "", *parameters])
