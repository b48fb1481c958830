"""The page of an access review, in parts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import NamedTuple

from django import forms
from django.utils.safestring import SafeString

from checks.ask_pages.links import command_line, value_html
from checks.ask_pages.question import as_of_asked, asked_again, moment_fields, page_url, written
from checks.asking import run
from checks.asking.snapshot import Snapshot, snapshot
from checks.compare import review_walk
from checks.compare.review import Access, AccessState, Review, ReviewFilter, moments_reviewed
from checks.explain.cases import ANY
from checks.explain.tree import shown_value
from facts.keyset_pages import any_ends
from facts.numbering import numbers_as_of
from facts.wire import id_from_json, value_from_text
from policy.core.clock import now, time_of
from policy.core.pagination import Pager, digest_of
from policy.errors import MalformedRequest
from policy.models import DEFAULT_SLUG, Environment, PolicyVersion
from policy.moments import AsOf, Moment, moment_of
from policy.values import STRING, Value

# ---- Texts for a review: values, moments, counts, and progress ----------------------------------------------------


def shown(value: Value) -> str:
    """Return `User:ann`; `User:*` is every User that no other line is about."""
    return f"{value.type}:*" if value.id == ANY else shown_value(value)


def shown_action(action: Value) -> str:
    """Return the action, with quotes only if it could be misread without."""
    if action.id == ANY:
        return "*"
    return action.id if action.id.replace("_", "").isalnum() else shown_value(action)


def described(moments: tuple[Moment, ...]) -> str:
    """Return the title of a review of these moments."""
    whens = [_when(moment) for moment in moments]
    return f"Access as of {whens[0]}" if len(whens) == 1 else f"Access changes from {whens[0]} to {whens[1]}"


def _when(moment: Moment) -> str:
    number = PolicyVersion.objects.values_list("number", flat=True).get(pk=moment.version or 0)
    return f"revision {moment.revision} ({time_of(moment.at):%Y-%m-%dT%H:%M:%SZ}, policy version {number})"


def looked_text(cursor: review_walk.ReviewCursor) -> str:
    """Return how far the review was read: all that precedes the cursor."""
    action = "any action" if cursor.action is None else f"“{cursor.action}”"
    kind = f"{action} on {cursor.resource_type} by {cursor.actor_type}"
    if cursor.leading is None:
        return f"everything before {kind}"
    if cursor.leading == ANY:
        return f"{kind}, resources that no fact mentions"
    can_be_shown = bool(cursor.leading.strip()) and cursor.leading.isprintable()
    return f"{kind}, up to {cursor.leading}" if can_be_shown else f"part of {kind}"


# ---- changed ------------------------------------------------------------------------------------------------------
# A page of the changes between two moments, mainly for one actor: gained, lost, and kept.

_MEANWHILE = 60_000_000  # microseconds; more than a page takes


def reviewed(
    review: Review, text: review_walk.Filter, start: review_walk.PageStart | None, collapses: bool = False
) -> review_walk.ReviewLines:
    """Return a page of a review."""
    with run.question_time(), run.snapshot(), ExitStack() as stack:
        sides = [stack.enter_context(_side(review.environment_id, each)) for each in review.moments]
        chunks = review_walk.Chunks(
            review, lambda: nullcontext(sides), text, start.cursor if start else None, collapses
        )
        return review_walk.stretch_of(
            chunks, start, review.moments[-1], text.has, lambda: sum(side.planning for side in sides), len(sides)
        )


def moments_of_page(
    environment_id: int, asked: Sequence[AsOf | None], start: review_walk.PageStart | None
) -> tuple[Moment, ...]:
    """Return the moments of a page. None is now; on a continuation page, the "now" of the first one."""
    then = _went_on(environment_id, start.last) if start is not None and None in asked else None
    return moments_reviewed(environment_id, *asked, called=("from", "to") if len(asked) > 1 else ("at",), now=then)


def asked_of_page(
    asked: Sequence[AsOf | None], moments: Sequence[Moment], start: review_walk.PageStart | None
) -> Iterator[AsOf | None]:
    """Yield each moment as links ask for it on its own; "now" of the first page becomes that page's time."""
    for when, moment in zip(asked, moments):
        yield time_of(moment.at) if when is None and start is not None else when


def _went_on(environment_id: int, last: Moment) -> Moment:
    found = moment_of(environment_id, last.revision, called="after")
    if found is None or last.at > now():
        raise MalformedRequest("after", "is a cursor with a time in the future; start again from the first page")
    return replace(found, at=last.at)


@contextmanager
def _side(environment_id: int, moment: Moment) -> Iterator[Snapshot]:
    """Open a session as of the moment, over current facts if they are the same, which is faster."""
    asked = None if _is_as_now(environment_id, moment) else moment
    with snapshot(environment_id, moment.version, (), frozenset(), asked) as found:
        yield replace(found, now=moment.at // 1_000_000)


def _is_as_now(environment_id: int, moment: Moment) -> bool:
    """Return whether nothing was written since the moment, and no fact has expired or expires while a page is read."""
    if Environment.objects.values_list("offset", flat=True).get(pk=environment_id) != moment.revision:
        return False
    return not any_ends(numbers_as_of(environment_id), moment.at, now() + _MEANWHILE)


# ---- review page --------------------------------------------------------------------------------------------------
# The page of reviews: who had what as of a moment, or who gained and who lost what between two; in parts.


class ReviewForm(forms.Form):
    """A form for a review of one moment or between two; moments are written as for the option `--as-of`."""

    start = forms.CharField(label="From", strip=True, required=False, max_length=60)
    end = forms.CharField(label="To", strip=True, required=False, max_length=60)
    at = forms.CharField(label="At", strip=True, required=False, max_length=60)
    actor_type = forms.CharField(strip=True, required=False)
    action = forms.CharField(strip=True, required=False)
    resource_type = forms.CharField(strip=True, required=False)
    filter = forms.CharField(strip=True, required=False)
    after = forms.CharField(required=False, max_length=8_000)

    def clean(self) -> dict:
        super().clean()
        sent = self.cleaned_data
        if not self.errors and bool(sent["start"]) == bool(sent["at"]):
            self.add_error(None, "Enter either “From” to compare, or “As of” to list access at one time.")
        elif not self.errors and sent["at"] and sent["end"]:
            self.add_error(None, "“To” requires “From”, not “As of”.")
        return sent


class ShownLine(NamedTuple):
    """A line of a review: its state, its values, and the URLs of its explanations by their labels."""

    state: str
    values: tuple[SafeString | str, ...]
    whys: Mapping[str, str]


def review_for_page(version: PolicyVersion, sent: Mapping[str, str]) -> dict[str, object]:
    """Return the data for a review's page: a page of its lines, and the URLs of other pages."""
    environment = version.environment
    of, moments, again, found = _page_of(environment.pk, sent)
    fields = {name: text for name, text in sent.items() if text and name != "after"}
    return stretch_shown(found, of, lambda after: page_url("review", version.pk, fields | after)) | {
        "stretch": found,
        "described": described(moments),
        "is_compared": len(moments) > 1,
        "columns": ("Actor", "Action", "Resource"),
        "lines": [_shown_line(line, moments, again, environment.slug) for line in found.lines],
        "command": _command(environment, sent),
    }


class _ReviewPage(NamedTuple):
    """A page of a review, what its cursor is of, and its moments: as they are, and as links ask for them."""

    of: str
    moments: tuple[Moment, ...]
    asked: tuple[AsOf | None, ...]
    lines: review_walk.ReviewLines


def _page_of(environment_id: int, sent: Mapping[str, str]) -> _ReviewPage:
    of = digest_of(environment_id, {name: text for name, text in sent.items() if name != "after"})
    start, asked = review_walk.page_start_from_text(sent["after"], of), _moments_sent(sent)
    moments = moments_of_page(environment_id, asked, start)
    review = Review(environment_id, moments, _wanted(sent))
    lines = reviewed(review, review_walk.Filter(sent["filter"]), start)
    return _ReviewPage(of, moments, tuple(asked_of_page(asked, moments, start)), lines)


def review_to_json(environment_id: int, sent: Mapping[str, str]) -> tuple[dict[str, object], int]:
    """Return a page of a review, for programs, and the revision that it ends with. `sent` is as for the page."""
    if bool(sent["start"]) == bool(sent["at"]):
        raise MalformedRequest("from", "is required to compare two moments, or `at` to list access at one")
    if sent["at"] and sent["end"]:
        raise MalformedRequest("to", "requires `from`")
    of, moments, _, found = _page_of(environment_id, sent)
    body = {
        "results": [_line_to_json(line) for line in found.lines],
        "not_answered": [str(each) for each in found.not_answered],
        "next_page_token": review_walk.page_start_text(found.next, of) if found.next else None,
    }
    return body, moments[-1].revision


def _line_to_json(line: Access) -> dict[str, object]:
    actor, action, resource = ({"type": value.type, "id": "*" if value.id == ANY else value.id} for value in line[1:])
    return {"state": line.state, "actor": actor, "action": action["id"], "resource": resource}


def stretch_shown(found: review_walk.ReviewLines, of: str, url: Callable[[dict[str, str]], str]) -> dict[str, object]:
    """Return how far a page has looked, and the URLs of the others. From a short page, `onwards` leads to the next."""
    following = url({"after": review_walk.page_start_text(found.next, of)}) if found.next else ""
    return {
        "looked": looked_text(found.looked) if found.looked else "",
        "onwards": following if found.is_short else "",
        "pager": Pager("" if found.is_first else url({}), next="" if found.is_short else following),
    }


def _shown_line(line: Access, moments: Sequence[Moment], asked: Sequence[AsOf | None], slug: str) -> ShownLine:
    """Return the line with the URL of its explanation as of the moment when it held."""
    place = 0 if line.state == AccessState.LOST else -1
    values = value_shown(line.actor, slug), shown_action(line.action), value_shown(line.resource, slug)
    return ShownLine(line.state, values, {"Explain": why_url(line, moments[place], asked[place])})


def why_url(line: Access, moment: Moment, asked: AsOf | None) -> str:
    """Return the URL of the line's explanation as of a moment."""
    about = {"kind": "authorize", "actor": written(line.actor), "resource": written(line.resource)}
    about |= {"action": "*" if line.action.id == ANY else shown_action(line.action)}
    return page_url("ask", moment.version, asked_again(about, **moment_fields(asked, moment)))


def value_shown(value: Value, slug: str) -> SafeString | str:
    return shown(value) if value.id == ANY else value_html(value, slug)


def _wanted(sent: Mapping[str, str]) -> ReviewFilter:
    """Return what the review is restricted to; the field `actor_type` has a type, or an actor such as `User:ann`."""
    text, resource_type = sent["actor_type"], sent["resource_type"]
    action = sent["action"] and id_from_json(STRING, sent["action"], "action")
    if ":" not in text.replace("::", ""):
        return ReviewFilter(text, action, resource_type)
    actor = value_from_text(text)
    return ReviewFilter(actor.type, action, resource_type, actor.id)


def _moments_sent(sent: Mapping[str, str]) -> list[AsOf | None]:
    if sent["at"]:
        return [as_of_asked(sent["at"], "at")]
    return [as_of_asked(sent["start"], "from"), as_of_asked(sent["end"], "to") if sent["end"] else None]


def _command(environment: Environment, sent: Mapping[str, str]) -> str:
    """Return the command that prints the whole review in a terminal; empty if it cannot be copied safely."""
    options = {"from": "start", "to": "end", "at": "at", "actor-type": "actor_type", "action": "action"}
    options["resource-type"] = "resource_type"
    is_one = ":" in sent["actor_type"].replace("::", "")
    options |= {"actor" if is_one else "actor-type": options.pop("actor-type")}
    given = [f"--{name}={sent[field]}" for name, field in options.items() if sent[field]]
    there = [] if environment.slug == DEFAULT_SLUG else [f"--environment={environment.slug}"]
    return command_line("review_access", *there, *given)
