"""The question of a page, to be copied: as a request with curl, and as a command line. Neither contains a key.

Whatever the ids contain, a copied text is one line, which asks this question and does nothing else in a shell. If a
word has a character that cannot be seen, there is no command line: a terminal might take the character for a key press.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from checks.asking.question import Asked, Question
from checks.explain.cases import ANY
from checks.serializers import SMALLEST
from checks.workbench.addresses import json_text, written
from checks.workbench.questions import CHANGED, PageQuestion
from facts.wire import Fact, fact_to_json
from policy.clock import short_text_of
from policy.models import DEFAULT_SLUG
from policy.moments import AsOf, Moment
from policy.values import Value

COMMAND = "authz"


@dataclass(frozen=True)
class Copy:
    title: str
    text: str


def copies(asked: PageQuestion, questions: Sequence[Question], origin: str) -> list[Copy]:
    """Return what can be copied; nothing for a text that is not published, since only the page can ask it."""
    about = (asked.actor, asked.action, asked.resource)
    is_any = any(each is not None and each.ids == (ANY,) for each in about)  # only an explanation is about any value
    if asked.text or (is_any and asked.kind.name != "authorize"):
        return []
    found = [Copy("On the command line", line) for line in _commands(asked) if line]
    if asked.kind.name != CHANGED:
        found += [Copy("Over the interface", _curl(asked, each, origin)) for each in questions]
    return found


# ---- over the interface --------------------------------------------------------------------------------------------


def _curl(asked: PageQuestion, question: Question, origin: str) -> str:
    name, body = _request(asked, question)
    if asked.context:
        body["context_facts"] = [fact_to_json(fact) for fact in asked.context]
    body |= _moment(asked)
    address = shlex.quote(f"{origin}/api/{name}")
    return f'curl -sS -H "Authorization: Bearer $KEY" {address} -d {shlex.quote(json_text(body))}'


def _request(asked: PageQuestion, question: Question) -> tuple[str, dict[str, object]]:
    """Return the endpoint that answers the question, and its body."""
    actor, action, resource = (question.variables[name] for name in ("actor", "action", "resource"))
    about: dict[str, object] = {"actor_type": actor.type}
    if asked.kind.name == "who":
        constraints = {
            name: {"type": each.type, **({"ids": list(each.ids)} if each.ids else {})}
            for name, each in question.variables.items()
        }
        return "evaluate_query", {"predicate": ["allow", ["actor", "action", "resource"]], "constraints": constraints}
    about |= {"actor_id": actor.one or "*"}
    if asked.kind.name == "list":
        return "list", about | {"action": action.one, "resource_type": resource.type, "page_size": SMALLEST}
    there = {"resource_type": resource.type, "resource_id": resource.one or "*"}
    if asked.kind.name == "actions":
        return "actions", about | there
    is_any = ANY in (actor.one, action.one, resource.one)
    return "explain" if is_any else "authorize", about | {"action": action.one or "*"} | there


def _moment(asked: PageQuestion) -> dict[str, object]:
    then: dict[str, object] = {} if asked.moment is None else {"as_of": _as_of(asked, asked.moment)}
    is_active = asked.version.pk == asked.version.environment.policy_version_id
    return then if is_active and not then else then | {"policy_version": asked.version.number}


def _as_of(asked: PageQuestion, moment: Moment) -> int | str:
    return moment.revision if "revision" in asked.fields else short_text_of(moment.at)


# ---- on the command line -------------------------------------------------------------------------------------------


def _commands(asked: PageQuestion) -> Iterator[str]:
    if asked.kind.name == CHANGED:
        yield _line("review_access", [], [*_environment(asked), *_between(asked)])
        return
    if any(each is not None and each.ids == (ANY,) for each in (asked.actor, asked.action, asked.resource)):
        return  # the command has no notation for any value
    assert asked.resource is not None, "only of what changed, the resources may be open"
    options = [*_environment(asked), *[f"--context={_text_of(fact)}" for fact in asked.context]]
    options += [f"--{name.replace('_', '-')}={value}" for name, value in _moment(asked).items()]
    resource = asked.resource.type if asked.kind.name == "list" else written(Value(*_value(asked.resource)))
    words = [] if asked.kind.name == "actions" else [asked.action.one]
    if asked.kind.name == "who":
        options += [f"--actor-type={asked.actor.type}"] if asked.actor else []
        yield _line("ask who", [*words, resource], options)
    else:
        assert asked.actor is not None, "of all other questions, the actor is known"
        yield _line(f"ask {asked.kind.name}", [written(Value(*_value(asked.actor))), *words, resource], options)


def _value(asked: Asked) -> tuple[str, str]:
    return asked.type, asked.one


def _line(command: str, values: Sequence[str], options: Sequence[str]) -> str:
    """Return the command line; `--` stands before the values if one of them looks like an option."""
    ends = ["--"] if any(each.startswith("-") for each in values) else []
    return command_line(*command.split(), *options, *ends, *values)


def command_line(*words: str) -> str:
    """Return the words as a line for a shell; an empty text if a word has a character that cannot be seen."""
    return shlex.join([COMMAND, *words]) if all(map(str.isprintable, words)) else ""


def _environment(asked: PageQuestion) -> list[str]:
    slug = asked.version.environment.slug
    return [] if slug == DEFAULT_SLUG else ["--environment", slug]


def _between(asked: PageQuestion) -> Iterator[str]:
    assert asked.actor is not None, "what changed is asked of an actor"
    yield f"--actor={written(Value(*_value(asked.actor)))}"
    yield f"--from={_when(asked.since)}"
    if asked.until is not None:
        yield f"--to={_when(asked.until)}"
    if asked.action.ids:
        yield f"--action={asked.action.one}"
    if asked.resource:
        yield f"--resource-type={asked.resource.type}"


def _when(moment: AsOf | None) -> str:
    return str(moment) if isinstance(moment, int) or moment is None else moment.isoformat().replace("+00:00", "Z")


def _text_of(fact: Fact) -> str:
    """Return the fact as the command reads it: every argument with its type, in quotes."""
    return f"{fact.predicate}({', '.join(f'{arg.type}:{json_text(arg.id)}' for arg in fact.args)})"
