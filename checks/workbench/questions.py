"""A question as the address of its page has it: kinds, fields, and what they mean.

kind=who&action=read&resource=Repo:anvil        who may read Repo:anvil?
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from checks.asking.query import allow
from checks.asking.question import Asked, Question
from checks.explain.cases import ANY
from checks.workbench.addresses import written
from facts import wire
from facts.notation import fact_from_text, pattern_from_text, value_from_text
from facts.wire import Argument, Fact
from policy.clock import text_of
from policy.errors import AuthzError, MalformedRequest
from policy.models import PolicyVersion
from policy.moments import AsOf, Moment, as_of_from_text, moment_of
from policy.rules.program import Program
from policy.values import PRIMITIVES, STRING, Value

# ---- kinds ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    name: str
    label: str
    example: str
    completed: str = ""  # the list of suggestions for it
    is_needed: bool = True


@dataclass(frozen=True)
class Kind:
    name: str
    title: str
    fields: tuple[Field, ...]
    column: str = ""  # what is asked for, if the answer is a list

    @property
    def is_of_a_moment(self) -> bool:
        return self.name != CHANGED


CHANGED = "changed"
_ACTOR = Field("actor", "Actor", "User:alice", "actors")
_ACTION = Field("action", "Action", "read", "actions")
_RESOURCE = Field("resource", "Resource", "Repo:anvil", "resources")
_RESOURCES = Field("resource", "Resource type", "Repo", "types")
KINDS = (
    Kind("authorize", "May the actor do this?", (_ACTOR, _ACTION, _RESOURCE)),
    Kind("actions", "What may the actor do?", (_ACTOR, _RESOURCE), "action"),
    Kind("list", "On which resources?", (_ACTOR, _ACTION, _RESOURCES), "resource"),
    Kind(
        "who",
        "Who may do this?",
        (_ACTION, _RESOURCE, Field("actor", "Only actors of type", "any", "actor-types", is_needed=False)),
        "actor",
    ),
    Kind(
        CHANGED,
        "What changed for the actor?",
        (
            _ACTOR,
            Field("from", "From", "a revision, or 2026-11-03 14:00"),
            Field("to", "To", "now", is_needed=False),
            Field("action", "Only the action", "any", "actions", is_needed=False),
            Field("resource", "Only on type", "any", "types", is_needed=False),
        ),
    ),
)
BY_NAME = {kind.name: kind for kind in KINDS}
# All fields that an address may have, in their order there.
NAMES = (
    "kind", "actor", "action", "resource", "from", "to", "context", "revision", "at",
    "filter", "of", "after", "before",
)  # fmt: skip
_OF_PAGES = ("filter", "of", "after", "before")
_CURSORS = ("after", "before")  # ids, which are not trimmed: spaces at their ends belong to them


def filled(sent: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that are filled, in order."""
    texts = {name: _trimmed(name, sent.get(name, "")) for name in NAMES}
    return {name: text for name, text in texts.items() if text}


def _trimmed(name: str, text: str) -> str:
    return text if name in _CURSORS else text.replace("\r\n", "\n").strip()


def asked_again(fields: Mapping[str, str], **changed: str) -> dict[str, str]:
    """Return the fields of the same question, with some of them changed, from its first page on."""
    found = {name: text for name, text in fields.items() if name not in _OF_PAGES} | changed
    return {name: found[name] for name in NAMES if found.get(name)}


def carried_over(fields: Mapping[str, str], kind: Kind) -> dict[str, str]:
    """Return those of a question's fields that a question of another kind can take over."""
    was = BY_NAME.get(fields.get("kind", ""), KINDS[0])
    kept = {"kind": kind.name}
    for name in ("actor", "action", "resource"):
        theirs, mine = (next((each for each in one.fields if each.name == name), None) for one in (was, kind))
        text = fields.get(name, "")
        if theirs is None or mine is None or not mine.is_needed or not text:
            continue
        if theirs.completed == mine.completed:
            kept[name] = text
        elif mine.completed == "types":
            kept[name] = _type_in(text)
    others = ("context", "revision", "at") if kind.is_of_a_moment else ()
    return kept | {name: fields[name] for name in others if name in fields}


# ---- what is asked -------------------------------------------------------------------------------------------------


class Incomplete(AuthzError):
    """A field is left to fill in: the page says so, but not as an error."""


@dataclass(frozen=True)
class PageQuestion:
    """A question to a policy version, or to a text in its place, as of a moment (None: now)."""

    kind: Kind
    version: PolicyVersion
    fields: Mapping[str, str]  # that are filled
    actor: Asked | None
    action: Asked
    resource: Asked | None
    context: tuple[Fact, ...] = ()
    moment: Moment | None = None
    since: AsOf | None = None  # the first of two moments
    until: AsOf | None = None  # the second; None: now
    text: str = ""

    @property
    def environment_id(self) -> int:
        return self.version.environment_id

    @property
    def values(self) -> list[Value]:
        """Return the actor and the resource, as far as the question names them."""
        asked = [each for each in (self.actor, self.resource) if each is not None and each.ids]
        return [Value(each.type, each.one) for each in asked if each.one != ANY]

    def questions(self, program: Program) -> tuple[Question, ...]:
        """Return the questions for the engine: one, or one for each type of actor if no actor or type is named."""
        outs = (self.kind.column,) if self.kind.column else ()
        actors = [self.actor] if self.actor else [Asked(name) for name in actor_types(program)]
        assert self.resource is not None, "only of what changed, the resources may be open"
        return tuple([allow(actor, self.action, self.resource, outs, self.context) for actor in actors])


def actor_types(program: Program) -> list[str]:
    return sorted(name for name, each in program.types.items() if each.kind == "actor")


def question_of(version: PolicyVersion, fields: Mapping[str, str], text: str = "") -> PageQuestion:
    """Return the question that the fields ask; raise Incomplete if one is missing, AuthzError if one is wrong."""
    kind = BY_NAME.get(fields.get("kind", KINDS[0].name))
    if kind is None:
        names = ", ".join(f"`{each.name}`" for each in KINDS)
        raise MalformedRequest("", f"there is no kind of question `{fields['kind'][:40]}`; there are {names}")
    for field in kind.fields:
        if field.is_needed and field.name not in fields:
            raise Incomplete(f"name {'a moment' if field.name == 'from' else _with_article(field)}")
    if kind.name == CHANGED and fields["actor"].endswith(":*"):
        raise MalformedRequest("", "name one actor: what changed for all is on the page of reviews")
    asked = {field.name: _read(field, fields.get(field.name, "")) for field in kind.fields if field.completed}
    action = asked.get("action")
    context = tuple(fact_from_text(line) for line in fields.get("context", "").splitlines() if line.strip())
    is_then = kind.is_of_a_moment
    return PageQuestion(
        kind, version, fields, asked.get("actor"), action or Asked(STRING), asked.get("resource"), context,
        moment=_moment(version, fields) if is_then else None,
        since=None if is_then else as_of_asked(fields["from"], "from"),
        until=as_of_asked(fields["to"], "to") if not is_then and "to" in fields else None,
        text=text,
    )  # fmt: skip


def _with_article(field: Field) -> str:
    label = field.label.lower()
    return f"{'an' if label[0] in 'aeiou' else 'a'} {label}, such as `{field.example}`"


def _read(field: Field, text: str) -> Asked | None:
    if not text:
        return None
    match field.completed:
        case "actions":
            return Asked(STRING, (_name(text),))
        case "types" | "actor-types":
            return Asked(wire.name_from_json(_type_in(text), field.label.lower()))
    return _value(text)


def _name(text: str) -> str:
    """Read an action with or without its quotes; `*` is any."""
    if text == "*":
        return ANY
    match pattern_from_text(f"name({text})").args if text.startswith('"') else ():
        case (Argument(str(), str() as name),):
            return name
    return wire.id_from_json(STRING, text, "action")


def _value(text: str) -> Asked:
    """Read a value such as `User:ann`; `User:*` is any."""
    type_name, colon, an_id = text.rpartition(":")
    if colon and an_id == "*" and type_name not in PRIMITIVES:
        return Asked(type_name, (ANY,))
    try:
        found = value_from_text(text)
    except MalformedRequest:
        type_name, colon, an_id = text.partition(":")
        if not (colon and an_id and type_name.isidentifier()):
            raise
        hint = f"`{text}` is not a value; write it as `{written(Value(type_name, an_id))}`"
        raise MalformedRequest("", hint) from None
    return Asked(found.type, (found.id,))


def _type_in(text: str) -> str:
    """Return the type of a value, or the text itself if it is no value: it may be a type."""
    try:
        return _value(text).type
    except AuthzError:
        return text


# ---- moments -------------------------------------------------------------------------------------------------------


def _moment(version: PolicyVersion, fields: Mapping[str, str]) -> Moment | None:
    """Return the moment that the fields name, with the policy of the chosen version; None for now."""
    if "revision" in fields and "at" in fields:
        raise MalformedRequest("", "name a revision or a time, not both")
    when = None
    if "revision" in fields:
        when = as_of_asked(fields["revision"], "revision")
    elif "at" in fields:
        when = as_of_asked(fields["at"], "time")
    return None if when is None else moment_of(version.environment_id, when, version.number)


def as_of_asked(text: str, path: str) -> AsOf:
    """Read a revision's number, or a time; one without an offset is in UTC, and a day begins at midnight."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return as_of_from_text(text, path)
    if text.isdecimal():  # a revision, though Python also reads 20261103 as a date
        return as_of_from_text(text, path)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def moment_fields(asked: AsOf | None, moment: Moment) -> dict[str, str]:
    """Return the fields that ask about the same moment again."""
    if asked is None:
        return {}
    return {"revision": str(moment.revision)} if isinstance(asked, int) else {"at": text_of(moment.at)}
