"""Links between pages, and the question of a page as a request and a command."""

import re
import shlex
from collections.abc import Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from checks.ask_pages.question import PageQuestion, json_text, written
from checks.asking.question import SMALLEST, Asked, Question
from checks.explain.cases import ANY
from checks.explain.explain import ExplainedGoal
from checks.explain.tree import Reason, shown_value
from facts.pages.browse import value_url
from facts.wire import fact_to_json
from policy.core.clock import short_text_of
from policy.models import DEFAULT_SLUG
from policy.pages.highlight import highlighted_lines
from policy.values import PRIMITIVES, STRING, Value

# ---- Values, facts and rules as HTML with links to their pages ----------------------------------------------------

_WORDS = re.compile(r'"[^"]*"|(\w+)')  # of a rule, except in quotes


def page_lines(goal: ExplainedGoal) -> list[tuple[Reason, range]]:
    """Return the lines below the page's heading, without the use of the default rule.

    Each opens a list on the page if it has reasons; the range is of the lists that end after it.
    """
    roots = [each for reason in goal.reasons for each in (reason.because if _is_default(reason) else (reason,))]
    walked = [each for root in roots for each in root.lines()]
    depths = [depth for depth, _ in walked[1:]] + [0]
    return [(reason, range(depth - following)) for (depth, reason), following in zip(walked, depths)]


def _is_default(reason: Reason) -> bool:
    return bool(reason.because) and reason.rule is not None and reason.rule.line is None


def mentioned(reason: Reason) -> list[tuple[str, Value]]:
    """Return the bindings of the variables that the text of the reason's rule mentions."""
    words = set(_WORDS.findall(reason.rule.text)) if reason.rule else set()
    return [(name, value) for name, value in reason.bindings if name in words]


def highlighted(text: str) -> SafeString:
    return highlighted_lines(" ".join(text.split()))[0]


# ---- values --------------------------------------------------------------------------------------------------------


def value_html(value: Value | None, slug: str) -> SafeString:
    """Return the value as in texts, with a link to its page if it has an identity."""
    text = _text(value)
    if value is None or value.id == ANY or value.type in PRIMITIVES:
        return text
    return format_html('<a class="value" href="{}">{}</a>', value_url(slug, value), text)


def _text(value: Value | None) -> SafeString:
    """Return the value as in texts; an id is a single word, whatever characters it has."""
    shown = shown_value(value)
    if value is None or not shown.startswith(f"{value.type}:"):
        return highlighted_lines(shown)[0]
    return format_html('<span class="type">{}</span>:{}', value.type, shown.removeprefix(f"{value.type}:"))


def atom_html(predicate: str, args: tuple[Value | None, ...], slug: str) -> SafeString:
    shown = format_html_join(", ", "{}", ((value_html(each, slug),) for each in args))
    return format_html('<span class="call">{}</span>({})', predicate, shown)


def question_html(questions: Sequence[Question], slug: str) -> SafeString:
    """Return the call of questions that differ in at most one type, with `_` for the target."""
    ((predicate, names),) = questions[0].calls
    args = [{_value_of(each.variables[name]) for each in questions} for name in names]
    return atom_html(predicate, tuple([each.pop() if len(each) == 1 else None for each in args]), slug)


def _value_of(asked: Asked) -> Value | None:
    if asked.ids is None:
        return None if asked.type == STRING else Value(asked.type, ANY)
    return Value(asked.type, asked.one)


# ---- elsewhere ----------------------------------------------------------------------------------------------------
# The question of a page to copy: as a request with curl, and as a command line. Neither contains a key.
#
# Whatever the ids contain, a copied text is a single line, which asks this question and does nothing else in a shell.
# If a word has an invisible character, there is no command line: a terminal might take the character for a key press.

COMMAND = "authz"


def copies(asked: PageQuestion, questions: Sequence[Question], origin: str) -> list[tuple[str, str]]:
    """Return what can be copied, with titles; empty for a draft, since only the page can ask it."""
    about = (asked.actor, asked.action, asked.resource)
    is_any = any(each is not None and each.ids == (ANY,) for each in about)  # only explanations can be about any value
    if asked.text or (is_any and asked.kind.name != "authorize"):
        return []
    found = [
        ("Command line", _command(asked, is_any)),
        *(("HTTP API", _curl(asked, each, origin)) for each in questions),
    ]
    return [(title, line) for title, line in found if line]


# ---- HTTP API ------------------------------------------------------------------------------------------------------


def _curl(asked: PageQuestion, question: Question, origin: str) -> str:
    name, body = _request(asked, question)
    if asked.context:
        body["context_facts"] = [fact_to_json(fact) for fact in asked.context]
    body |= _moment(asked)
    address = shlex.quote(f"{origin}/api/{name}")
    return f'curl -sS -H "Authorization: Bearer $KEY" {address} -d {shlex.quote(json_text(body))}'


def _request(asked: PageQuestion, question: Question) -> tuple[str, dict[str, object]]:
    """Return the endpoint that answers the question, and the request body."""
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
    then: dict[str, object] = {}
    if (moment := asked.moment) is not None:
        then["as_of"] = moment.revision if "revision" in asked.fields else short_text_of(moment.at)
    is_active = asked.version.pk == asked.version.environment.policy_version_id
    return then if is_active and not then else then | {"policy_version": asked.version.number}


# ---- command line --------------------------------------------------------------------------------------------------


def _command(asked: PageQuestion, is_any: bool) -> str:
    """Return the command line; empty if it cannot be copied safely, or asks about any value, which it cannot name."""
    if is_any:
        return ""
    options = [*_environment(asked), *[f"--context={fact.noted}" for fact in asked.context]]
    options += [f"--{name.replace('_', '-')}={value}" for name, value in _moment(asked).items()]
    resource = asked.resource.type if asked.kind.name == "list" else _written(asked.resource)
    words = [] if asked.kind.name == "actions" else [asked.action.one]
    if asked.kind.name == "who":
        options += [f"--actor-type={asked.actor.type}"] if asked.actor else []
        return _line("ask who", [*words, resource], options)
    assert asked.actor is not None, "of all other questions, the actor is known"
    return _line(f"ask {asked.kind.name}", [_written(asked.actor), *words, resource], options)


def _written(asked: Asked) -> str:
    return written(Value(asked.type, asked.one))


def _line(command: str, values: Sequence[str], options: Sequence[str]) -> str:
    """Return the command line; `--` precedes the values if one of them looks like an option."""
    ends = ["--"] if any(each.startswith("-") for each in values) else []
    return command_line(*command.split(), *options, *ends, *values)


def command_line(*words: str) -> str:
    """Return the words as a line for a shell; empty if a word has an invisible character."""
    return shlex.join([COMMAND, *words]) if all(map(str.isprintable, words)) else ""


def _environment(asked: PageQuestion) -> list[str]:
    slug = asked.version.environment.slug
    return [] if slug == DEFAULT_SLUG else ["--environment", slug]
