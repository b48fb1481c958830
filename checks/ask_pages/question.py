"""The question of a page: its fields, completions, and unknown names in it."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote, urlencode

from django.urls import reverse

from checks.asking.advice import Unknown, Untyped, typed_values, unknown_in_question, unknown_words
from checks.asking.question import Asked, Question, allow
from checks.asking.snapshot import Snapshot
from checks.explain.cases import ANY
from facts import wire
from facts.keyset_pages import MentionedAsOf, known_ids
from facts.wire import Argument, Fact, fact_from_text, pattern_from_text, value_from_text
from policy.active import program_of_version
from policy.core import clock
from policy.core.clock import text_of
from policy.core.pagination import digest_of
from policy.errors import AuthzError, MalformedRequest
from policy.language.source import spelled_out
from policy.models import PolicyVersion
from policy.moments import AsOf, Moment, as_of_from_text, moment_of
from policy.rules.declarations import nearest
from policy.rules.program import Program
from policy.values import LAST_REVISION, PRIMITIVES, STRING, Value, quoted

# ---- Short and readable URLs by which pages link to each other ----------------------------------------------------
# /admin/policy/policyversion/3/ask/?kind=authorize&actor=User:ann&action=read&resource=Repo:acme/anvil

_AS_THEY_ARE = ":/*@,()"  # characters without a meaning in a query string, which are not escaped


def query_of(fields: Mapping[str, str]) -> str:
    """Return the query string with the nonempty fields, as readable as possible."""
    filled = {name: text for name, text in fields.items() if text}
    return urlencode(filled, quote_via=quote, safe=_AS_THEY_ARE)


def page_url(name: str, version: int | None, fields: Mapping[str, str] | None = None) -> str:
    """Return the URL of a page of a policy version."""
    path = reverse(f"admin:authz_policy_policyversion_{name}", args=[version])
    query = query_of(fields or {})
    return f"{path}?{query}" if query else path


# ---- values in fields ----------------------------------------------------------------------------------------------


def written(value: Value) -> str:
    """Return the value in the notation of fields and commands: `User:ann`, `User:"ann b."`; `User:*` is any."""
    return f"{value.type}:*" if value.id == ANY else value.noted


def written_action(name: str) -> str:
    """Return an action in the notation of its field: in quotes if it would be trimmed or misread otherwise."""
    if name == ANY:
        return "*"
    is_plain = name == name.strip() and not name.startswith('"') and len(name.splitlines()) == 1
    return name if is_plain else quoted(name)


def json_text(value: object) -> str:
    """Return JSON with invisible characters escaped, so that nothing hides in what is copied to a terminal."""
    return spelled_out(json.dumps(value, ensure_ascii=False))


# ---- The question in a page's URL: kinds, fields, and their meaning -----------------------------------------------
# kind=who&action=read&resource=Repo:anvil        who may read Repo:anvil?


@dataclass(frozen=True)
class QuestionField:
    name: str
    label: str
    example: str
    completed: str  # the list of suggestions for it
    is_needed: bool = True


@dataclass(frozen=True)
class QuestionForm:
    name: str
    title: str
    fields: tuple[QuestionField, ...]
    column: str = ""  # the target, if the answer is a list


_ACTOR = QuestionField("actor", "Actor", "User:alice", "actors")
_ACTION = QuestionField("action", "Action", "read", "actions")
_RESOURCE = QuestionField("resource", "Resource", "Repo:anvil", "resources")
_RESOURCES = QuestionField("resource", "Resource type", "Repo", "types")
KINDS = (
    QuestionForm("authorize", "Check", (_ACTOR, _ACTION, _RESOURCE)),
    QuestionForm("actions", "Actions", (_ACTOR, _RESOURCE), "action"),
    QuestionForm("list", "Resources", (_ACTOR, _ACTION, _RESOURCES), "resource"),
    QuestionForm(
        "who",
        "Actors",
        (_ACTION, _RESOURCE, QuestionField("actor", "Actor type", "any", "actor-types", is_needed=False)),
        "actor",
    ),
)
BY_NAME = {kind.name: kind for kind in KINDS}
# All fields that a URL may have, in that order.
NAMES = ("kind", "actor", "action", "resource", "context", "revision", "at", "filter", "after", "before")
_OF_PAGES = ("filter", "after", "before")


def filled(sent: Mapping[str, str]) -> dict[str, str]:
    """Return the nonempty fields, in order. PostgreSQL knows no NUL, which no id contains."""
    texts = {name: sent.get(name, "").replace("\r\n", "\n").replace("\0", "").strip() for name in NAMES}
    return {name: text for name, text in texts.items() if text}


def asked_again(fields: Mapping[str, str], **changed: str) -> dict[str, str]:
    """Return the fields of the same question, from its first page, with some of them changed."""
    found = {name: text for name, text in fields.items() if name not in _OF_PAGES} | changed
    return {name: found[name] for name in NAMES if found.get(name)}


def carried_over(fields: Mapping[str, str], kind: QuestionForm) -> dict[str, str]:
    """Return the fields of a question that a question of another kind can keep."""
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
    return kept | {name: fields[name] for name in ("context", "revision", "at") if name in fields}


def tabs(version: PolicyVersion, fields: Mapping[str, str], here: str) -> list[tuple[str, str, str, bool]]:
    """Return name, title and URL of each kind of question about the same values, and whether it is the page's own.

    The last one is the access review, whose page has a form of its own.
    """
    found = [(each.name, each.title, page_url("ask", version.pk, carried_over(fields, each))) for each in KINDS]
    actor = carried_over(fields, KINDS[0]).get("actor", "")
    found.append(("review", "Changes", page_url("review", version.pk, {"actor_type": actor.removesuffix(":*")})))
    return [(*each, each[0] == here) for each in found]


def program_or_none(version: PolicyVersion) -> Program | None:
    """Return the version's program; None if the compiler no longer accepts its text."""
    try:
        return program_of_version(version.pk)
    except AuthzError:
        return None


# ---- the question --------------------------------------------------------------------------------------------------


class Incomplete(AuthzError):
    """A field is empty; the page says so, but not as an error."""


class Link(NamedTuple):
    text: str
    address: str = ""


@dataclass(frozen=True)
class PageQuestion:
    """A question to a policy version, or to a draft in its place, as of a moment (None: now)."""

    kind: QuestionForm
    version: PolicyVersion
    fields: Mapping[str, str]  # the nonempty ones
    actor: Asked | None
    action: Asked
    resource: Asked
    context: tuple[Fact, ...] = ()
    moment: Moment | None = None
    text: str = ""

    @property
    def environment_id(self) -> int:
        return self.version.environment_id

    @property
    def values(self) -> dict[str, Value]:
        """Return the actor and the resource by the names of their fields, if the question names them."""
        asked = {"actor": self.actor, "resource": self.resource}
        return {
            name: Value(each.type, each.one)
            for name, each in asked.items()
            if each is not None and each.ids and each.one != ANY
        }

    @property
    def of(self) -> str:
        """Return what cursors of the answer's pages are of: all that determines the answer."""
        return digest_of(self.version.pk, asked_again(self.fields, filter=self.fields.get("filter", "")), self.text)

    def link(self, text: str, **changed: str) -> Link:
        """Return a link to the question with some fields changed."""
        return Link(text, page_url("ask", self.version.pk, asked_again(self.fields, **changed)))

    def questions(self, program: Program) -> tuple[Question, ...]:
        """Return the questions for the engine: one, or one for each actor type if neither actor nor type is given."""
        outs = (self.kind.column,) if self.kind.column else ()
        actors = [self.actor] if self.actor else [Asked(name) for name in actor_types(program)]
        return tuple([allow(actor, self.action, self.resource, outs, self.context) for actor in actors])


def actor_types(program: Program) -> list[str]:
    return sorted(name for name, each in program.types.items() if each.kind == "actor")


def question_of(version: PolicyVersion, fields: Mapping[str, str], text: str = "") -> PageQuestion:
    """Return the question in the fields; raise Incomplete if one is missing, AuthzError if one is invalid."""
    kind = BY_NAME.get(fields.get("kind", KINDS[0].name))
    if kind is None:
        names = ", ".join(f"`{each.name}`" for each in KINDS)
        raise MalformedRequest("", f"`{fields['kind'][:40]}` is not a valid `kind`; use one of {names}")
    for field in kind.fields:
        if field.is_needed and field.name not in fields:
            raise Incomplete(f"enter {_with_article(field)}")
    asked = {each.name: _read(each, fields[each.name], version) for each in kind.fields if each.name in fields}
    context = tuple(fact_from_text(line) for line in fields.get("context", "").splitlines() if line.strip())
    return PageQuestion(
        kind, version, fields, asked.get("actor"), asked.get("action", Asked(STRING)), asked["resource"], context,
        _moment(version, fields), text,
    )  # fmt: skip


def _with_article(field: QuestionField) -> str:
    label = field.label.lower()
    return f"{'an' if label[0] in 'aeiou' else 'a'} {label}, such as `{field.example}`"


def _read(field: QuestionField, text: str, version: PolicyVersion) -> Asked:
    match field.completed:
        case "actions":
            return Asked(STRING, (_name(text),))
        case "types" | "actor-types":
            return Asked(wire.name_from_json(_type_in(text), field.label.lower()))
    return _value(text, lambda text: typed_values(program_of_version(version.pk), field.name, text))


def _name(text: str) -> str:
    """Read an action with or without its quotes; `*` is any."""
    if text == "*":
        return ANY
    match pattern_from_text(f"name({text})").args if text.startswith('"') else ():
        case (Argument(str(), str() as name),):
            return name
    return wire.id_from_json(STRING, text, "action")


def _value(text: str, suggest: Callable[[str], Sequence[str]] = lambda text: ()) -> Asked:
    """Read a value such as `User:ann`; `User:*` is any."""
    type_name, colon, an_id = text.rpartition(":")
    if colon and an_id == "*" and type_name not in PRIMITIVES:
        return Asked(type_name, (ANY,))
    try:
        found = value_from_text(text, suggest)
    except MalformedRequest:
        type_name, colon, an_id = text.partition(":")
        if not (colon and an_id and type_name.isidentifier()):
            raise
        hint = f"`{text}` is not a valid value; write it as `{written(Value(type_name, an_id))}`"
        raise MalformedRequest("", hint) from None
    return Asked.of(found)


def _type_in(text: str) -> str:
    """Return the type of a value, or the text itself if it is not a value: it may be a type."""
    try:
        return _value(text).type
    except AuthzError:
        return text


# ---- moments -------------------------------------------------------------------------------------------------------


def _moment(version: PolicyVersion, fields: Mapping[str, str]) -> Moment | None:
    """Return the moment in the fields, with the policy of the chosen version; None for now."""
    if "revision" in fields and "at" in fields:
        raise MalformedRequest("", "enter a revision or a time, not both")
    when = None
    if "revision" in fields:
        when = as_of_asked(fields["revision"], "revision")
    elif "at" in fields:
        when = as_of_asked(fields["at"], "time")
    return None if when is None else moment_of(version.environment_id, when, version.number)


def as_of_asked(text: str, path: str) -> AsOf:
    """Read a revision's number, or a time; without an offset it is in UTC, and a date means midnight."""
    try:
        time = datetime.fromisoformat(text)
        if not text.isdecimal():  # a revision, though Python also reads 20261103 as a date
            return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        pass  # the reading below says what is wrong with it
    return as_of_from_text(text, path)


def moment_fields(asked: AsOf | None, moment: Moment) -> dict[str, str]:
    """Return the fields for the same moment."""
    if asked is None:
        return {}
    return {"revision": str(moment.revision)} if isinstance(asked, int) else {"at": text_of(moment.at)}


def why_url(access: tuple[Value, Value, Value], moment: Moment, asked: AsOf | None) -> str:
    """Return the URL that explains whether an actor may do something, as of a moment and by its policy."""
    actor, action, resource = access
    about = {"kind": "authorize", "actor": written(actor), "resource": written(resource)}
    about |= {"action": written_action(action.id)}
    return page_url("ask", moment.version, asked_again(about, **moment_fields(asked, moment)))


# ---- completion ---------------------------------------------------------------------------------------------------
# Completions of a question's fields: names of the policy, and ids that stored facts mention.

MOST_TYPES = 8  # of actors, and of resources, whose ids are suggested before anything is typed
MOST_IDS = 20  # of each of these types
_AS_WRITTEN = 50  # ids with the typed prefix


def suggestions(environment_id: int, program: Program, start: str = "") -> dict[str, list[str]]:
    """Return suggestions for each field: ids of the type that `start` names before its colon.

    If `start` has no colon, return names of the policy, and some ids of the first types.
    """
    actors, declared = actor_types(program), sorted(program.types)
    type_name = max((name for name in declared if start.startswith(f"{name}:")), key=len, default="")
    if type_name:
        begun = start.removeprefix(f"{type_name}:").lstrip('"')
        found = _values(environment_id, [type_name], begun, _AS_WRITTEN)
        return {"actors": found if type_name in actors else [], "resources": found}
    if ":" in start:
        return {"actors": [], "resources": []}
    resources = [name for name in declared if program.types[name].permissions] or declared
    return {
        "actors": _values(environment_id, actors[:MOST_TYPES], "", MOST_IDS),
        "resources": _values(environment_id, resources[:MOST_TYPES], "", MOST_IDS),
        "types": [name for name in declared if program.types[name].permissions or name not in actors],
        "actor-types": actors,
        "actions": sorted({name for each in program.types.values() for name in each.permissions}),
    }


def _values(environment_id: int, types: list[str], begun: str, most: int) -> list[str]:
    ids = known_ids(environment_id, types, begun, most)
    return [written(Value(name, text)) for name in types for text in ids.get(name, ())]


# ---- unknown ------------------------------------------------------------------------------------------------------
# Notes on unknown names in a question: words that the policy does not have, and ids that no fact mentions.
#
# Each note suggests a correction: the same question with another name in place of the unknown one.

MOST_WORDS = 12  # known words listed in a note
_BEGINNING = 2  # letters that an id and its correction have in common


@dataclass(frozen=True)
class Note:
    """A sentence about what is unknown, and links to the question with another name: what was meant, and known ones.

    A name has no address if the unknown one is in none of the question's fields.
    """

    sentence: str
    meant: Link | None = None
    known: tuple[Link, ...] = ()
    more: int = 0  # number of known names that are not listed


def unknown_names(session: Snapshot, asked: PageQuestion, questions: Sequence[Question]) -> list[Note]:
    """Return a note for each word of the question and its context that the policy does not have."""
    found = dict.fromkeys(each for one in questions for each in unknown_in_question(session.program, one))
    in_context = dict.fromkeys(
        each
        for fact in asked.context
        for each in unknown_words(session.program, fact.predicate, [(arg.type, arg.id) for arg in fact.args])
        if each not in found
    )
    return [
        *(_note(each, asked) for each in found if _is_named(each, asked)),
        *(_note(each, asked, is_linked=False) for each in in_context),
    ]


def _is_named(unknown: Unknown | Untyped, asked: PageQuestion) -> bool:
    """Return whether the user named the word; types of actors are not named if all of them are included."""
    return unknown.noun != "type" or asked.actor is not None or unknown.word == asked.resource.type


def _note(unknown: Unknown | Untyped, asked: PageQuestion, is_linked: bool = True) -> Note:
    def link(word: str) -> Link:
        changed = _corrected(unknown, word, asked.fields) if is_linked else {}
        return asked.link(word, **changed) if changed else Link(word)

    known = unknown.known[:MOST_WORDS]
    meant = link(unknown.meant) if unknown.meant else None
    return Note(unknown.sentence, meant, tuple(map(link, known)), len(unknown.known) - len(known))


def _corrected(unknown: Unknown | Untyped, word: str, fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that have the unknown word, with another one in its place."""
    if unknown.noun == "action" and fields.get("action"):
        return {"action": word}
    names = ("actor", "resource") if unknown.noun == "type" else ()
    return {
        name: word + fields[name].removeprefix(unknown.word)
        for name in names
        if fields.get(name) == unknown.word or fields.get(name, "").startswith(f"{unknown.word}:")
    }


# ---- ids -----------------------------------------------------------------------------------------------------------


def unmentioned(
    session: Snapshot, environment_id: int, values: Iterable[Value], link: Callable[[Value, str], Link]
) -> Iterator[Note]:
    """Yield a note for each value that no fact and no rule mentions; `link` asks again with a text in its place."""
    moment = session.past or Moment(LAST_REVISION, clock.now(), None)
    for value in values:
        if value.type in PRIMITIVES or not session.program.knows(value.type):
            continue
        if MentionedAsOf(session.numbers, value.type, (moment,)).has(value.id):
            continue
        if value.id in session.program.values.get(value.type, ()):
            continue
        near = nearest(value.id, known_ids(environment_id, [value.type], value.id[:_BEGINNING]).get(value.type, ()))
        meant = link(value, written(Value(value.type, near))) if near and near != value.id else None
        yield Note(f"no stored facts mention {written(value)}", meant)
