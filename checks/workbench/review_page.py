"""The page of reviews: who had what as of a moment, or who gained and who lost what between two; a page at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django import forms
from django.utils.safestring import SafeString

from checks.explain.cases import ANY
from checks.workbench.addresses import page_url, written
from checks.workbench.changed import asked_of_page, moments_of_page, reviewed
from checks.workbench.elsewhere import command_line
from checks.workbench.links import value_html
from checks.workbench.questions import as_of_asked, asked_again, moment_fields
from checks.workbench.review import Access, AccessState, Review, Wanted
from checks.workbench.review_cursor import page_start_from_text, page_start_text
from checks.workbench.review_text import described, headline, lines_of, looked_text, shown, shown_action
from checks.workbench.stretches import Filter, Stretch
from facts.notation import value_from_text
from policy.models import DEFAULT_SLUG, Environment
from policy.moments import AsOf, Moment
from policy.values import Value


class ReviewForm(forms.Form):
    """Asks for a review from one moment to another, or at one; moments are written as for the option `--as-of`."""

    start = forms.CharField(label="From", strip=True, required=False, max_length=60)
    end = forms.CharField(label="To", strip=True, required=False, max_length=60)
    at = forms.CharField(label="At", strip=True, required=False, max_length=60)
    actor_type = forms.CharField(strip=True, required=False)
    action = forms.CharField(strip=True, required=False)
    resource_type = forms.CharField(strip=True, required=False)
    filter = forms.CharField(strip=True, required=False)
    after = forms.CharField(strip=False, required=False, max_length=4_000)

    def clean(self) -> dict:
        super().clean()
        sent = self.cleaned_data
        if not self.errors and bool(sent["start"]) == bool(sent["at"]):
            self.add_error(None, "name a moment to compare from, or one to list who had what then")
        elif not self.errors and sent["at"] and sent["end"]:
            self.add_error(None, "a moment to compare up to goes with one to compare from")
        return sent


@dataclass(frozen=True, slots=True)
class ReviewPage:
    """A page of a review's lines. The command prints all of them."""

    described: str
    moments: tuple[Moment, ...]
    stretch: Stretch
    command: str
    asked: tuple[AsOf | None, ...]

    @property
    def is_compared(self) -> bool:
        return len(self.moments) > 1

    @property
    def headline(self) -> str:
        return headline(self.stretch, len(self.moments))

    @property
    def range(self) -> str:
        return lines_of(self.stretch, len(self.moments))

    @property
    def looked(self) -> str:
        return looked_text(self.stretch.looked) if self.stretch.looked else ""


def review_for_page(environment: Environment, sent: Mapping[str, str]) -> ReviewPage:
    page_start = page_start_from_text(sent["after"])
    asked = _moments_sent(sent)
    moments = moments_of_page(environment.pk, asked, page_start)
    review = Review(environment.pk, moments, _wanted(sent))
    found = reviewed(review, Filter(sent["filter"]), page_start)
    again = tuple(asked_of_page(asked, moments, page_start))
    return ReviewPage(described(moments), moments, found, _command(environment, sent), again)


def _wanted(sent: Mapping[str, str]) -> Wanted:
    """Return what the review is narrowed to; the field `actor_type` has a type, or one actor such as `User:ann`."""
    text, action, resource_type = sent["actor_type"], sent["action"], sent["resource_type"]
    if ":" not in text.replace("::", ""):
        return Wanted(text, action, resource_type)
    actor = value_from_text(text)
    return Wanted(actor.type, action, resource_type, actor.id)


def _moments_sent(sent: Mapping[str, str]) -> list[AsOf | None]:
    if sent["at"]:
        return [as_of_asked(sent["at"], "at")]
    return [as_of_asked(sent["start"], "from"), as_of_asked(sent["end"], "to") if sent["end"] else None]


def _command(environment: Environment, sent: Mapping[str, str]) -> str:
    """Return the command that prints the whole review in a terminal; an empty text if it cannot be copied safely."""
    options = {"from": "start", "to": "end", "at": "at", "actor-type": "actor_type", "action": "action"}
    options["resource-type"] = "resource_type"
    is_one = ":" in sent["actor_type"].replace("::", "")
    options |= {"actor" if is_one else "actor-type": options.pop("actor-type")}
    given = [f"--{name}={sent[field]}" for name, field in options.items() if sent[field]]
    there = [] if environment.slug == DEFAULT_SLUG else [f"--environment={environment.slug}"]
    return command_line("review_access", *there, *given)


# ---- as it is shown ------------------------------------------------------------------------------------------------

Row = tuple[str, tuple[SafeString | str, ...], str]  # the state; actor, action and resource; why


def review_page(found: ReviewPage, version: int, slug: str, sent: Mapping[str, str]) -> dict[str, object]:
    """Return the lines, with links to what they name and to explanations, and the addresses of other pages."""
    fields = {name: text for name, text in sent.items() if text and name != "after"}
    following = found.stretch.next
    return {
        "lines": [_row(found, line, slug) for line in found.stretch.lines],
        "first": "" if found.stretch.is_first else page_url("review", version, fields),
        "next": page_url("review", version, fields | {"after": page_start_text(following)}) if following else "",
    }


def _row(found: ReviewPage, line: Access, slug: str) -> Row:
    """Return the line, with the address that explains it as of the moment when it held."""
    place = 0 if line.state == AccessState.LOST else -1
    moment, asked = found.moments[place], found.asked[place]
    about = {"kind": "authorize", "actor": written(line.actor), "resource": written(line.resource)}
    about |= {"action": "*" if line.action.id == ANY else shown_action(line.action)}
    why = page_url("ask", moment.version, asked_again(about, **moment_fields(asked, moment)))
    return line.state, (_value(line.actor, slug), shown_action(line.action), _value(line.resource, slug)), why


def _value(value: Value, slug: str) -> SafeString | str:
    return shown(value) if value.id == ANY else value_html(value, slug)
