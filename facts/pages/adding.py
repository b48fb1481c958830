"""The page where one fact is added."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from django import forms
from django.http import QueryDict

from facts import store
from facts.ends import EndIsPast, EndsStay
from facts.models import Signature
from facts.names import UnknownName, unknown_names
from facts.notation import fact_from_text
from facts.numbering import types_of_text
from facts.store import Inserts
from facts.wire import Fact
from policy.active import active_program
from policy.clock import microseconds_of
from policy.errors import AuthzError, Unavailable
from policy.models import Environment
from policy.revisions import By
from policy.rules.program import Program

_MOST_SHAPES = 12  # of facts that are shown as examples
_MOST_TYPES = 3  # of one argument


class NewFact(forms.Form):
    environment = forms.ModelChoiceField(Environment.objects.all(), empty_label=None)
    fact = forms.CharField(
        widget=forms.TextInput(attrs={"spellcheck": "false", "autocomplete": "off"}),
        help_text='such as <code>has_role(User{"ann"}, "admin", Repo{"acme"})</code>, '
        "or shorter <code>has_role(User:ann, admin, Repo:acme)</code>",
    )
    ends = forms.DateTimeField(
        required=False,
        label="Until",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": 1}),
        help_text="in UTC; from then on the fact does not count. Without it, the fact is for good.",
    )

    def __init__(self, by: By, data: QueryDict | None, environment: Environment | None = None, ends_stay: bool = True):
        super().__init__(data, initial={"environment": environment}, label_suffix="")
        self.by = by
        self.ends_stay = ends_stay

    def clean(self) -> dict:
        """Store the fact, which validates it as in the API; turn what storing raises into errors of the form."""
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
    """Return the signature under which a stored fact is filed."""
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
