"""Notes on unknown names in a question: words that the policy does not have, and ids that no fact mentions.

Each note comes with what may have been meant: the same question with that in the unknown name's place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from checks.asking.advice import Unknown, unknown_in_question, unknown_words
from checks.asking.question import Question
from checks.asking.snapshot import Snapshot
from checks.workbench.access_kinds import values_in_rules
from checks.workbench.addresses import written
from checks.workbench.questions import PageQuestion, asked_again
from facts.mentioned_as_of import MentionedAsOf
from facts.mentioned_ids import known_ids
from policy import clock
from policy.moments import LAST_REVISION, Moment
from policy.rules.declarations import nearest
from policy.rules.program import Program
from policy.values import PRIMITIVES, Value

MOST_WORDS = 12  # known words that a note lists
_BEGINNING = 2  # letters that an id and the one that was meant have in common
Fields = Mapping[str, str]


@dataclass(frozen=True)
class Correction:
    """A word, and the question's fields with it in place; no fields if the unknown word stands in none of them."""

    word: str
    fields: Fields


@dataclass(frozen=True)
class Note:
    """A sentence about what is unknown, what may have been meant, and the words that are known."""

    sentence: str
    meant: Correction | None = None
    known: tuple[Correction, ...] = ()
    more: int = 0  # how many known words are not listed


def unknown_names(session: Snapshot, asked: PageQuestion, questions: Sequence[Question]) -> list[Note]:
    """Return a note for each word of the question, and of its context, that the policy does not have."""
    found = dict.fromkeys(each for one in questions for each in unknown_in_question(session.program, one))
    in_context = dict.fromkeys(
        each
        for fact in asked.context
        for each in unknown_words(session.program, fact.predicate, [(arg.type, arg.id) for arg in fact.args])
        if each not in found
    )
    return [
        *(_note(each, asked.fields) for each in found if _is_named(each, asked)),
        *(_note(each, {}) for each in in_context),
    ]


def unknown_types(program: Program, asked: PageQuestion) -> list[Note]:
    """Return a note for each type of the question that the policy does not have."""
    known = tuple(sorted(program.types))
    return [
        _note(Unknown("type", name, "", known), asked.fields)
        for name in dict.fromkeys(_types_of(asked))
        if not program.knows(name)
    ]


def _is_named(unknown: Unknown, asked: PageQuestion) -> bool:
    """Say whether the user named the word: types of actors are not named if all of them are asked about."""
    return unknown.noun != "type" or asked.actor is not None or unknown.word in _types_of(asked)


def _types_of(asked: PageQuestion) -> list[str]:
    return [each.type for each in (asked.actor, asked.resource) if each is not None]


def _note(unknown: Unknown, fields: Fields) -> Note:
    meant = unknown.meant
    known = [_correction(unknown, word, fields) for word in unknown.known[:MOST_WORDS]]
    more = len(unknown.known) - len(known)
    return Note(unknown.sentence, meant and _correction(unknown, meant, fields), tuple(known), more)  # type: ignore[arg-type]


def _correction(unknown: Unknown, word: str, fields: Fields) -> Correction:
    if unknown.noun == "action" and fields.get("action"):
        return Correction(word, asked_again(fields, action=word))
    if unknown.noun == "type":
        changed = {
            name: word + fields[name].removeprefix(unknown.word)
            for name in ("actor", "resource")
            if fields.get(name) == unknown.word or fields.get(name, "").startswith(f"{unknown.word}:")
        }
        if changed:
            return Correction(word, asked_again(fields, **changed))
    return Correction(word, {})


# ---- ids -----------------------------------------------------------------------------------------------------------


def unmentioned(session: Snapshot, asked: PageQuestion) -> Iterator[Note]:
    """Yield a note for the actor, and one for the resource, if no fact and no rule mentions it."""
    moment = session.past or Moment(LAST_REVISION, clock.now(), None)
    in_context = {value for fact in asked.context for value in fact.args}
    for value in asked.values:
        if value.type in PRIMITIVES or value in in_context or not session.program.knows(value.type):
            continue
        if MentionedAsOf(session.numbers, value.type, (moment,)).has(value.id):
            continue
        if value.id in values_in_rules((session.program,), value.type):
            continue
        yield Note(f"no stored fact mentions {written(value)}", _meant(asked, value))


def _meant(asked: PageQuestion, value: Value) -> Correction | None:
    start = value.id[:_BEGINNING]
    near = nearest(value.id, known_ids(asked.environment_id, [value.type], start).get(value.type, ()))
    if near is None or near == value.id:
        return None
    meant = written(Value(value.type, near))
    changed = {
        name: meant
        for name, each in (("actor", asked.actor), ("resource", asked.resource))
        if each is not None and each.type == value.type and each.ids == (value.id,)
    }
    return Correction(meant, asked_again(asked.fields, **changed))
