"""The pages that add and delete facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django import forms
from django.http import QueryDict

from facts import store
from facts.accept import EndIsPast, UnknownName, unknown_names
from facts.keyset_pages import Mark, StoredFact, kept
from facts.models import Row, Signature
from facts.notation import fact_from_text
from facts.numbering import types_of_text
from facts.pages.listing import MARKS, end_of
from facts.read import fact_of_row
from facts.store import Deletes, EndsStay, Inserts
from facts.wire import Fact, exact_pattern
from policy.active import active_program
from policy.core.clock import microseconds_of
from policy.core.journal import By, changing
from policy.core.pagination import Cursor, key_of
from policy.errors import AuthzError, Unavailable
from policy.models import Environment
from policy.rules import program
from policy.rules.program import Program

# ---- The page that adds a fact -------------------------------------------------------------------------------------

_MOST_SHAPES = 12  # shapes of facts that are shown as examples
_MOST_TYPES = 3  # per argument


class NewFact(forms.Form):
    environment = forms.ModelChoiceField(Environment.objects.all(), empty_label=None)
    fact = forms.CharField(
        widget=forms.TextInput(attrs={"spellcheck": "false", "autocomplete": "off"}),
        help_text='For example <code>has_role(User:ann, "admin", Repo:acme)</code>.',
    )
    ends = forms.DateTimeField(
        required=False,
        label="Until",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": 1}),
        help_text="The fact expires at this time (UTC). Leave empty for no expiry.",
    )

    def __init__(self, by: By, data: QueryDict | None, environment: Environment | None = None, ends_stay: bool = True):
        super().__init__(data, initial={"environment": environment}, label_suffix="")
        self.by = by
        self.ends_stay = ends_stay

    def clean(self) -> dict:
        """Store the fact, which validates it as in the API; convert exceptions to errors of the form."""
        super().clean()
        asked = self.cleaned_data
        if not self.errors:
            try:
                fact = _ending(fact_from_text(asked["fact"]), asked["ends"])
                store.apply(asked["environment"].id, [Inserts([fact], None, self.ends_stay)], self.by)
                asked["stored"] = fact
            except EndIsPast as reason:
                self.add_error("ends", reason.reason)
            except EndsStay as reason:
                self.add_error("ends", reason.message)
            except (AuthzError, Unavailable) as reason:
                self.add_error("fact", reason.message)
        return asked


def _ending(fact: Fact, at: datetime | None) -> Fact:
    return fact if at is None else replace(fact, expires_at=microseconds_of(at))


def kind_of(environment: Environment, fact: Fact) -> Signature:
    """Return the signature of a stored fact."""
    kinds = Signature.objects.filter(environment=environment, predicate=fact.predicate)
    return next(kind for kind in kinds if types_of_text(kind.types) == fact.signature.types)


def unknown(environment: Environment, fact: Fact) -> list[UnknownName]:
    """Return the names in a stored fact that the active policy does not know."""
    return unknown_names(program_of(environment), [fact])


def program_of(environment: Environment | None) -> Program | None:
    """Return the active policy; None if there is none, or if the compiler no longer accepts it."""
    try:
        return None if environment is None else active_program(environment.pk)
    except AuthzError:
        return None


def shapes(program: Program | None) -> list[str]:
    """Return shapes of facts that the policy accepts, such as `has_role(User, String, Repo)`; not all if many."""
    if program is None:
        return []
    found = [
        f"{predicate}({', '.join(_named(types) for types in pattern)})"
        for (predicate, _), patterns in sorted(program.accepted.items())
        for pattern in patterns
    ]
    return found[:_MOST_SHAPES]


def _named(types: frozenset[str]) -> str:
    listed = sorted(types)
    return "|".join(listed[:_MOST_TYPES]) + ("|…" if len(listed) > _MOST_TYPES else "")


# ---- deleting -----------------------------------------------------------------------------------------------------
# Deleting selected facts: the page first lists them and asks for confirmation; then all or none of them are deleted.
#
# The confirmation applies to the facts as the page showed them. If one has got another expiry since then, or was
# deleted and stored again, nothing is deleted and the page asks again. A fact that is gone by then is only reported.

_CHOSEN = "facts to delete"


@dataclass(frozen=True)
class ChosenFact:
    """A fact that is to be deleted, as the page showed it."""

    row: Row
    since: int
    expires_at: int | None

    @property
    def token(self) -> str:
        return Cursor(_CHOSEN, [self.row, self.since, self.expires_at]).token


@dataclass(frozen=True)
class ShownFact:
    """A fact to be deleted, with what the page displays, and whether it has changed since the page asked."""

    kind: Signature
    asked: ChosenFact
    fact: Fact
    is_changed: bool = False

    @property
    def end(self) -> str:
        return end_of(self.fact)


@dataclass(frozen=True)
class DeletionOutcome:
    """The result of a deletion. If a fact has changed, nothing is deleted, and all stored ones are `asked_again`."""

    asked_again: tuple[ShownFact, ...] = ()
    deleted: tuple[tuple[Signature, Fact], ...] = ()
    gone: tuple[Fact, ...] = ()


def asked_about(tokens: Iterable[str]) -> tuple[tuple[ShownFact, ...], tuple[Fact, ...]]:
    """Return the selected facts that are stored, in the order of the tokens, and those that are no longer stored."""
    marks = (Mark.of(key_of(token, MARKS)) for token in tokens)
    rows = {mark.row: None for mark in marks if mark is not None}
    kinds = _kinds(rows)
    found = kept(kinds.values(), rows.keys())
    shown = [_shown(kinds[row[0]], row, found[row]) for row in rows if row in found]
    return tuple(shown), tuple(_fact(kinds[row[0]], row) for row in rows if row not in found and row[0] in kinds)


def confirmed(tokens: Iterable[str]) -> tuple[ChosenFact, ...]:
    """Return the facts that the page asked about, from the tokens that it issued; drop invalid tokens."""
    return tuple(filter(None, map(_chosen_fact, tokens)))


def delete(asked: Sequence[ChosenFact], by: By) -> DeletionOutcome:
    """Delete the facts of all environments in one transaction, unless one has changed since the page asked."""
    rows = {each.row: each for each in asked}
    kinds = _kinds(rows)
    with changing():
        # Lock the environments first, so that nothing changes before the deletion; in a fixed order, against deadlocks.
        where = sorted({kind.environment_id for kind in kinds.values()})
        list(Environment.objects.select_for_update().filter(pk__in=where).order_by("pk").values_list("pk"))
        found = kept(kinds.values(), rows.keys())
        if any(_is_changed(each, found[row]) for row, each in rows.items() if row in found):
            again = [_shown(kinds[row[0]], row, now, _is_changed(rows[row], now)) for row, now in found.items()]
            return DeletionOutcome(asked_again=tuple(again))
        for environment_id in where:
            here = [now.fact for row, now in found.items() if kinds[row[0]].environment_id == environment_id]
            patterns = [exact_pattern(fact) for fact in here]
            if patterns:
                store.apply(environment_id, [Deletes(patterns)], by)
    deleted = tuple((kinds[row[0]], now.fact) for row, now in found.items())
    return DeletionOutcome(deleted=deleted, gone=tuple(_fact(kinds[row[0]], row) for row in rows if row not in found))


def _kinds(rows: Iterable[Row]) -> dict[int, Signature]:
    numbers = {row[0] for row in rows}
    return {kind.pk: kind for kind in Signature.objects.select_related("environment").filter(pk__in=numbers)}


def _shown(kind: Signature, row: Row, now: StoredFact, is_changed: bool = False) -> ShownFact:
    return ShownFact(kind, ChosenFact(row, now.since, now.fact.expires_at), now.fact, is_changed)


def _is_changed(asked: ChosenFact, now: StoredFact) -> bool:
    return (asked.since, asked.expires_at) != (now.since, now.fact.expires_at)


def _fact(kind: Signature, row: Row) -> Fact:
    return fact_of_row(program.Signature(kind.predicate, types_of_text(kind.types)), row[1:])


def _chosen_fact(token: str) -> ChosenFact | None:
    key = key_of(token, _CHOSEN)
    return None if key is None else ChosenFact(tuple(key[0]), key[1], key[2])
