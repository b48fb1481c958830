"""Which facts a page is about: those of an environment, a predicate and a type, with an id or the beginning of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django import forms

from facts.models import Signature
from facts.numbering import types_of_text
from facts.walk import EVERY, IdRange, SearchColumn, beginning, exactly, search_columns
from policy.models import Environment

EXACTLY, BEGINS = "exactly", "begins"


class Narrowing(forms.Form):
    """What part of the facts to show; every field may be left open."""

    environment = forms.ModelChoiceField(Environment.objects.all(), required=False, empty_label="all environments")
    predicate = forms.ChoiceField(required=False)
    type = forms.ChoiceField(required=False, label="Type of an argument")
    match = forms.ChoiceField(required=False, label="Whose id", choices=((BEGINS, "begins with"), (EXACTLY, "is")))
    id = forms.CharField(required=False, label="Id", strip=False)

    def __init__(self, sent: Mapping[str, str]):
        super().__init__(_with_match(sent), label_suffix="")
        kinds = Signature.objects.values_list("predicate", "types").distinct()
        predicates = sorted({predicate for predicate, _ in kinds})
        types = sorted({name for _, text in kinds for name in types_of_text(text)})
        self._offer("predicate", "all predicates", predicates)
        self._offer("type", "all types", types)
        text = {"list": "ids", "autocomplete": "off", "spellcheck": "false", "placeholder": "any"}
        self.fields["id"].widget.attrs.update(text)

    @property
    def fields_shown(self) -> list[forms.BoundField]:
        """Return the fields, without that of the environment if there is only one to choose."""
        is_one = Environment.objects.count() < 2 and "environment" not in self.errors
        return [field for field in self if not (is_one and field.name == "environment")]

    def _offer(self, name: str, every: str, choices: list[str]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", every), *((each, each) for each in choices)]


def _with_match(sent: Mapping[str, str]) -> dict[str, str]:
    """Return what was sent, with a default for `match`: the exact id if one is named, else the beginning of one."""
    found = {name: sent[name] for name in Narrowing.base_fields if name in sent}
    return {"match": EXACTLY if found.get("id") else BEGINS} | {name: text for name, text in found.items() if text}


@dataclass(frozen=True)
class Narrowed:
    """The facts that were chosen; if the choice is not valid, only the form, which has the errors."""

    form: Narrowing
    kinds: tuple[Signature, ...] = ()
    environment: Environment | None = None
    predicate: str = ""
    type: str = ""
    text: str = ""
    begins: bool = False

    @property
    def is_valid(self) -> bool:
        return self.form.is_valid()

    @property
    def ids(self) -> IdRange:
        if not self.text:
            return EVERY
        return beginning(self.text) if self.begins else exactly(self.text)

    @property
    def walk(self) -> list[SearchColumn]:
        return search_columns(self.kinds, self.ids, self.type)

    @property
    def asked(self) -> dict[str, str]:
        """Return the parameters of an address that chooses these facts."""
        found = {
            "environment": str(self.environment.pk) if self.environment else "",
            "predicate": self.predicate,
            "type": self.type,
            "id": self.text,
            "match": BEGINS if self.text and self.begins else "",
        }
        return {name: text for name, text in found.items() if text}


def narrowed(sent: Mapping[str, str]) -> Narrowed:
    form = Narrowing(sent)
    if not form.is_valid():
        return Narrowed(form)
    asked = form.cleaned_data
    kinds = Signature.objects.select_related("environment").order_by("environment__slug", "predicate", "types")
    if asked["environment"]:
        kinds = kinds.filter(environment=asked["environment"])
    if asked["predicate"]:
        kinds = kinds.filter(predicate=asked["predicate"])
    fitting = tuple(kind for kind in kinds if not asked["type"] or asked["type"] in types_of_text(kind.types))
    words = {"predicate": asked["predicate"], "type": asked["type"], "text": asked["id"]}
    return Narrowed(form, fitting, asked["environment"], **words, begins=asked["match"] == BEGINS)
