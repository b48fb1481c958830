"""The page of an access review, in parts."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from django import forms

from checks.ask_pages.links import command_line
from checks.ask_pages.question import Link, Note, as_of_asked, page_url, program_or_none, tabs, unmentioned, why_url
from checks.asking import run
from checks.asking.snapshot import Snapshot, snapshot
from checks.compare import review_walk
from checks.compare.review import Access, AccessState, Review, ReviewFilter, moments_reviewed
from checks.compare.review_walk import page_start_text
from checks.explain.cases import ANY
from checks.explain.tree import shown_value
from facts.keyset_pages import any_ends
from facts.numbering import numbers_as_of
from facts.wire import id_from_json, value_from_text
from policy.core.clock import now, time_of
from policy.core.pagination import Pager, digest_of
from policy.errors import AuthzError, MalformedRequest
from policy.models import DEFAULT_SLUG, Environment, PolicyVersion
from policy.moments import AsOf, Moment, moment_of
from policy.values import STRING, Value

# ---- Texts for a review: values, moments, counts, and progress ----------------------------------------------------


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


def empty_review_page(version: PolicyVersion, sent: Mapping[str, str]) -> dict[str, object]:
    """Return what the page has around a review: links to other pages, and names to fill in."""
    actor, program = sent.get("actor_type", ""), program_or_none(version)
    declared = program.types if program else {}
    return {
        "sent": sent,
        "environment": version.environment,
        "tabs": tabs(version, {"actor": actor} if _is_one(actor) else {}, "review"),
        "since": list(_since(version, sent)),
        "types": sorted(declared),
        "actions": sorted({name for each in declared.values() for name in each.permissions}),
    }


def _since(version: PolicyVersion, sent: Mapping[str, str]) -> Iterator[Link]:
    """Yield links to the changes since earlier moments, if these are available."""
    latest, time = version.environment.offset, time_of(now())
    moments: dict[str, AsOf] = {"before the last change": latest - 1}
    moments |= {"1 day ago": time - timedelta(days=1), "7 days ago": time - timedelta(days=7)}
    about = {name: text for name, text in sent.items() if name in ("actor_type", "action", "resource_type", "filter")}
    for label, when in moments.items():
        with suppress(AuthzError):
            moment_of(version.environment_id, when)
            start = str(when) if isinstance(when, int) else f"{when:%Y-%m-%dT%H:%M:%SZ}"
            yield Link(label, page_url("review", version.pk, about | {"start": start}))


def review_for_page(version: PolicyVersion, sent: Mapping[str, str]) -> dict[str, object]:
    """Return the data for a review's page: a page of its lines, and the URLs of other pages."""
    environment = version.environment
    of, moments, asked, wanted, found = _page_of(environment.pk, sent, collapses=True)
    fields = {name: text for name, text in sent.items() if text and name != "after"}
    following = (
        page_url("review", version.pk, fields | {"after": page_start_text(found.next, of)}) if found.next else ""
    )
    return {
        "stretch": found,
        "described": described(moments),
        "is_compared": len(moments) > 1,
        "notes": _unmentioned(version, moments[-1], wanted, fields),
        "lines": [(line, _whys(line, moments, asked)) for line in found.lines],
        "has_every": any(ANY in (value.id for value in line[1:]) for line in found.lines),
        "has_kept": any(line.state == AccessState.KEPT for line in found.lines),
        "command": _command(environment, sent),
        "looked": looked_text(found.looked) if found.looked else "",
        "onwards": following if found.is_short else "",
        "pager": Pager(
            "" if found.is_first else page_url("review", version.pk, fields), next="" if found.is_short else following
        ),
    }


def _unmentioned(version: PolicyVersion, moment: Moment, wanted: ReviewFilter, fields: dict[str, str]) -> list[Note]:
    """Return a note if the review is of one actor, which no fact and no rule mentions."""
    if not wanted.actor:
        return []

    def link(value: Value, text: str) -> Link:
        return Link(text, page_url("review", version.pk, fields | {"actor_type": text}))

    actor = Value(wanted.actor_type, wanted.actor)
    with snapshot(version.environment_id, moment.version, (), frozenset(), moment) as session:
        return list(unmentioned(session, version.environment_id, [actor], link))


class _ReviewPage(NamedTuple):
    """A page of a review, what its cursor is of, and its moments: as they are, and as links ask for them."""

    of: str
    moments: tuple[Moment, ...]
    asked: tuple[AsOf | None, ...]
    wanted: ReviewFilter
    lines: review_walk.ReviewLines


def _page_of(environment_id: int, sent: Mapping[str, str], collapses: bool) -> _ReviewPage:
    """Return a page. With `collapses`, what the one actor asked for may do on every resource is one line."""
    of = digest_of(environment_id, {name: text for name, text in sent.items() if name != "after"})
    start, asked = review_walk.page_start_from_text(sent["after"], of), _moments_sent(sent)
    moments, wanted = moments_of_page(environment_id, asked, start), _wanted(sent)
    text = review_walk.Filter(sent["filter"], is_of_actors=not wanted.actor)
    lines = reviewed(Review(environment_id, moments, wanted), text, start, collapses and bool(wanted.actor))
    return _ReviewPage(of, moments, tuple(asked_of_page(asked, moments, start)), wanted, lines)


def review_to_json(environment_id: int, sent: Mapping[str, str]) -> tuple[dict[str, object], int]:
    """Return a page of a review, for programs, and the revision that it ends with. `sent` is as for the page."""
    if bool(sent["start"]) == bool(sent["at"]):
        raise MalformedRequest("from", "is required to compare two moments, or `at` to list access at one")
    if sent["at"] and sent["end"]:
        raise MalformedRequest("to", "requires `from`")
    of, moments, _, _, found = _page_of(environment_id, sent, collapses=False)
    body = {
        "results": [_line_to_json(line) for line in found.lines],
        "not_answered": [str(each) for each in found.not_answered],
        "next_page_token": page_start_text(found.next, of) if found.next else None,
    }
    return body, moments[-1].revision


def _line_to_json(line: Access) -> dict[str, object]:
    actor, action, resource = ({"type": value.type, "id": "*" if value.id == ANY else value.id} for value in line[1:])
    return {"state": line.state, "actor": actor, "action": action["id"], "resource": resource}


def _whys(line: Access, moments: Sequence[Moment], asked: Sequence[AsOf | None]) -> dict[str, str]:
    """Return the URLs of the line's explanations as of each moment, by their labels."""
    labels = ["Explain"] if len(moments) == 1 else ["before", "now" if asked[-1] is None else "after"]
    return {label: why_url(line[1:], moment, when) for label, moment, when in zip(labels, moments, asked)}


def _wanted(sent: Mapping[str, str]) -> ReviewFilter:
    """Return what the review is restricted to; the field `actor_type` has a type, or an actor such as `User:ann`."""
    text, resource_type = sent["actor_type"], sent["resource_type"]
    action = sent["action"] and id_from_json(STRING, sent["action"], "action")
    if not _is_one(text):
        return ReviewFilter(text, action, resource_type)
    actor = value_from_text(text)
    return ReviewFilter(actor.type, action, resource_type, actor.id)


def _is_one(text: str) -> bool:
    """Return whether the text is an actor, such as `User:ann`, and not a type, such as `app::User`."""
    return ":" in text.replace("::", "")


def _moments_sent(sent: Mapping[str, str]) -> list[AsOf | None]:
    if sent["at"]:
        return [as_of_asked(sent["at"], "at")]
    return [as_of_asked(sent["start"], "from"), as_of_asked(sent["end"], "to") if sent["end"] else None]


def _command(environment: Environment, sent: Mapping[str, str]) -> str:
    """Return the command that prints the whole review in a terminal; empty if it cannot be copied safely."""
    options = {"from": "start", "to": "end", "at": "at", "actor-type": "actor_type", "action": "action"}
    options["resource-type"] = "resource_type"
    options |= {"actor" if _is_one(sent["actor_type"]) else "actor-type": options.pop("actor-type")}
    given = [f"--{name}={sent[field]}" for name, field in options.items() if sent[field]]
    there = [] if environment.slug == DEFAULT_SLUG else [f"--environment={environment.slug}"]
    return command_line("review_access", *there, *given)
