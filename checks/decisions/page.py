"""The page of decisions: it reads the decision log from its end, explains its lines, and replays one of them."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from django import forms
from django.http import HttpRequest, QueryDict
from django.urls import reverse

import checks.authzen.views
import checks.urls
from checks.ask_pages.question import NAMES, as_of_asked, json_text, page_url, query_of, written, written_action
from checks.asking.question import Asked, Question
from checks.compare.differences import AskedTogether
from checks.decisions.log import EVENTS, LogLine, is_denial, line_of_text, shown
from checks.decisions.replay import NotAsked, given_for, replayed
from policy.core.clock import microseconds_of, text_of
from policy.core.config import STANDARD_OUTPUT, settings
from policy.core.pagination import Cursor, Listing, digest_of, key_of
from policy.errors import AuthzError, Unavailable
from policy.language.source import spelled_out
from policy.models import Environment, PolicyVersion
from policy.values import Value

# ---- reading a file from its end ----------------------------------------------------------------------------------
# A line is identified by the position where it begins. Each request reads at most `MOST_READ` bytes; if that is not
# enough for a page, the page says so, and its next one continues there.

PAGE = 50
MOST_READ = 16 << 20  # bytes
_BLOCK = 1 << 17
_DISORDER = 60_000_000  # microseconds by which lines of several processes may be out of order

PlacedLine = tuple[int, bytes]


def lines_before(file: BinaryIO, end: int) -> Iterator[PlacedLine]:
    """Yield the lines that end before a position, the last one first."""
    tail = b""
    while end > 0:
        start = max(0, end - _BLOCK)
        file.seek(start)
        text = file.read(end - start) + tail
        tail, *whole = text.split(b"\n")
        place = start + len(text)
        for line in reversed(whole):
            place -= len(line)
            yield place, line
            place -= 1
        end = start
    yield 0, tail


def lines_after(file: BinaryIO, start: int) -> Iterator[PlacedLine]:
    """Yield the lines that follow the one at a position."""
    file.seek(start)
    place = start + len(file.readline())
    for line in file:
        yield place, line
        place += len(line)


def end_of(file: BinaryIO, until: int | None) -> int:
    """Return a position behind all lines from before a time, by bisection; without one, the end of the file."""
    low, high = 0, file.seek(0, os.SEEK_END)
    while until is not None and high - low > _BLOCK:
        file.seek((low + high) // 2)
        file.readline()
        found = line_of_text(file.readline(), 0)
        if isinstance(found, LogLine) and found.at > until + _DISORDER:
            high = (low + high) // 2
        else:
            low = (low + high) // 2
    file.seek(high)
    return high + len(file.readline())


# ---- which lines ----------------------------------------------------------------------------------------------------

OUTCOMES = {"": "any", "allowed": "allowed", "denied": "denied or empty", "events": "events of agents"}
_LOCAL = {"authorize_query": "authorize", "actions_query": "actions", "list_query": "list"}  # their `query` is such


class DecisionFilter(forms.Form):
    """The lines to show. Empty fields match all."""

    actor = forms.CharField(required=False, widget=forms.TextInput({"placeholder": "User:alice"}))
    action = forms.CharField(label="Action or tool", required=False)
    resource = forms.CharField(required=False, widget=forms.TextInput({"placeholder": "Repo:anvil, or Repo"}))
    outcome = forms.ChoiceField(label="Result", choices=OUTCOMES.items, required=False)
    since = forms.CharField(label="From", required=False, widget=forms.TextInput({"placeholder": "2026-11-03T14:00Z"}))
    until = forms.CharField(label="To", required=False, widget=forms.TextInput({"placeholder": "now"}))
    text = forms.CharField(
        label="Line contains", required=False, widget=forms.TextInput({"placeholder": "request, session or key"})
    )

    def clean_since(self) -> int | None:
        return _time_of(self.cleaned_data["since"])

    def clean_until(self) -> int | None:
        return _time_of(self.cleaned_data["until"])


def _time_of(text: str) -> int | None:
    """Return the microseconds of a time in a field."""
    if not text:
        return None
    try:
        found = as_of_asked(text, "time")
    except AuthzError as reason:
        raise forms.ValidationError(reason.message) from None
    if isinstance(found, int):
        raise forms.ValidationError("Enter a time, such as 2026-11-03T14:00Z.")
    return microseconds_of(found)


def given_by_line(line: LogLine) -> AskedTogether:
    """Return what the line asked; nothing if it is an event, or if its endpoint rejects the question."""
    if line.endpoint in _LOCAL and isinstance(line.question, dict):
        line = replace(line, endpoint=_LOCAL[line.endpoint], question=line.question.get("query"))
    try:
        return AskedTogether() if line.is_event else given_for(line, None)
    except AuthzError:
        return AskedTogether()


def parts_of(question: Question) -> tuple[Asked, ...]:
    """Return actor, action and resource; nothing if it is a query about other predicates."""
    (predicate, names), *others = question.calls
    if predicate != "allow" or others or len(names) != 3:
        return ()
    return tuple(question.variables[name] for name in names)


def _is_named(wanted: str, asked: Asked) -> bool:
    """Return whether a text names the type, one of the ids, or a value: `Repo`, `read`, `Repo:anvil`."""
    ids = asked.ids or ()
    return wanted in (asked.type, *ids, *(f"{asked.type}:{text}" for text in ids)) or wanted in [
        written(Value(asked.type, text)) for text in ids
    ]


def _may_be_about(raw: bytes, wanted: Sequence[str]) -> bool:
    """Return False for most lines that `is_about` rejects, without parsing them."""
    if b"\\" in raw:  # names may be written with escapes
        return True
    return all('"' in text or text.rpartition(":")[2].encode() in raw for text in wanted)


def is_about(line: LogLine, wanted: Sequence[str]) -> bool:
    """Return whether the line is about an actor, action and resource; empty ones match anything."""
    if not any(wanted):
        return True
    if line.is_event:
        named = [[line.question.get("agent_id"), *users_of(line.question)], [line.question.get("tool_name")], []]
        return all(not text or text in texts for text, texts in zip(wanted, named))
    found = filter(None, map(parts_of, given_by_line(line).questions))
    return any(all(not text or _is_named(text, each) for text, each in zip(wanted, parts)) for parts in found)


def users_of(event: Mapping[str, object]) -> list[str]:
    users = event.get("users")
    pairs = [(each.get("type"), each.get("id")) for each in users] if isinstance(users, list) else []
    return [f"{type_name}:{text}" for type_name, text in pairs]


def _has_outcome(line: LogLine, wanted: str) -> bool:
    if line.is_event or wanted == "events":
        return line.is_event and wanted in ("", "events")
    return not wanted or is_denial(line.answer) == (wanted == "denied")


# ---- pages ----------------------------------------------------------------------------------------------------------


@dataclass
class DecisionReader:
    """Reads the lines of an environment that a filter selects."""

    file: BinaryIO
    environment: Environment
    wanted: Mapping[str, Any]  # the filter's cleaned data
    stopped: int | None = None  # the position at which `MOST_READ` was reached
    unreadable: int = 0

    @property
    def listing(self) -> Listing[LogLine]:
        return Listing(self._earlier, self._later)

    def _earlier(self, place: int | None, most: int) -> list[LogLine]:
        end = end_of(self.file, self.wanted["until"]) if place is None else place
        return [*islice(self._found(lines_before(self.file, end), end, self.wanted["since"]), most)]

    def _later(self, place: int, most: int) -> list[LogLine]:
        return [*islice(self._found(lines_after(self.file, place), place, None), most)][::-1]

    def _found(self, lines: Iterator[PlacedLine], begin: int, since: int | None) -> Iterator[LogLine]:
        self.stopped = None
        text = self.wanted["text"].encode()
        about = [self.wanted[name] for name in ("actor", "action", "resource")]
        for place, raw in lines:
            line = line_of_text(raw, place) if raw.strip() and text in raw and _may_be_about(raw, about) else None
            if isinstance(line, LogLine):
                if since is not None and line.at < since - _DISORDER:
                    return
                if self._is_wanted(line) and is_about(line, about):
                    yield line
            elif line is not None:
                self.unreadable += 1
            if abs(place - begin) > MOST_READ:
                self.stopped = place
                return

    def _is_wanted(self, line: LogLine) -> bool:
        since, until = self.wanted["since"], self.wanted["until"]
        is_in_time = (since is None or line.at >= since) and (until is None or line.at < until)
        is_here = line.environment == self.environment.pk
        return is_here and is_in_time and _has_outcome(line, self.wanted["outcome"])


class DecisionRow(NamedTuple):
    """A line of the log as a row."""

    line: LogLine
    time: str
    text: str
    outcome: str
    mood: str  # of the outcome, as templates name it: yes, no or empty
    url: str
    explain_url: str


def page_of_log(request: HttpRequest, environment: Environment) -> dict[str, object]:
    """Return the template context: a page of lines, newest first, or one line and its replays."""
    form = DecisionFilter(request.GET)
    shown_page: dict[str, object] = {"environment": environment, "form": form}
    path = Path(settings.DECISION_LOG)
    try:
        # Opening a pipe would wait for its writer.
        if settings.DECISION_LOG == STANDARD_OUTPUT or (path.exists() and not path.is_file()):
            return shown_page | {"trouble": "There is no decision log to read. Set DECISION_LOG to a file."}
        if not form.is_valid():
            return shown_page
        with path.open("rb") as file:
            return shown_page | _read(file, request.GET, environment, form.cleaned_data)
    except FileNotFoundError:
        return shown_page | {"rows": ()}
    except OSError as reason:
        return shown_page | {"trouble": f"Cannot read the decision log: {reason.strerror}."}


def _read(file: BinaryIO, sent: QueryDict, environment: Environment, wanted: dict[str, Any]) -> dict[str, object]:
    whole = f"decisions of {environment.pk} in {os.fstat(file.fileno()).st_ino}"  # another file after rotation
    if (place := key_of(sent.get("line"), whole)) is not None:
        file.seek(place)
        line = line_of_text(file.readline(), place)
        # The file may have other lines by now, also of other environments.
        return _line_page(line) if isinstance(line, LogLine) and line.environment == environment.pk else {}
    fields = {name: str(sent.get(name, "")) for name in wanted}
    of = digest_of(whole, fields)

    def url(more: Mapping[str, str]) -> str:
        return f"{reverse('admin:decisions')}?{query_of({'environment': environment.slug, **fields, **more})}"

    reader = DecisionReader(file, environment, wanted)
    page = reader.listing.page(PAGE, *(key_of(sent.get(name), of) for name in ("after", "before")))
    pager = page.pager(of, lambda line: line.number, url)
    if reader.stopped is not None and not page.has_next:
        pager = pager._replace(next=url({"after": Cursor(of, reader.stopped).token}))
    numbers = {each.policy_version for each in page.rows}
    versions = PolicyVersion.objects.filter(environment=environment, number__in=numbers - {None})
    keys = dict(versions.values_list("number", "pk"))
    rows = [
        _row(each, keys.get(each.policy_version or 0), url({"line": Cursor(whole, each.number).token}))
        for each in page.rows
    ]
    read = f"{MOST_READ >> 10:,} KiB" if reader.stopped is not None else ""
    return {"rows": rows, "pager": pager, "read": read, "unreadable": reader.unreadable}


# ---- a line ---------------------------------------------------------------------------------------------------------

_LONGEST = 300  # characters of a question
_LONGEST_CONTEXT = 2_000  # characters of context facts in a URL
_LONGEST_BODY = 50_000  # characters of a line on its page
_MOST_LINKS = 20
_KINDS = {(): "authorize", ("resource",): "list", ("action",): "actions", ("actor",): "who"}


def _row(line: LogLine, version_key: int | None, url: str = "") -> DecisionRow:
    given = given_by_line(line)
    text = _event_text(line) if line.is_event else str(given)
    mood = "" if line.is_event or "characters" in line.answer else "no" if is_denial(line.answer) else "yes"
    explained = explain_url(line, given.questions[0], version_key) if version_key and len(given.questions) == 1 else ""
    time = f"{text_of(line.at)[:19]}Z"
    return DecisionRow(line, time, _cut(text or line.endpoint, _LONGEST), shown(line.answer), mood, url, explained)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _event_text(line: LogLine) -> str:
    """Return an event in one line: `bot-7 for User:ann: tool_call_request get_weather {"location": "SF"}`."""
    event = line.question
    users = ", ".join(users_of(event))
    said = next((event[name] for name in ("tool_parameters", "tool_result", "message") if name in event), None)
    words = [line.endpoint.removeprefix(EVENTS), event.get("tool_name"), json_text(said) if said else ""]
    who = f"{event.get('agent_id')} for {users}" if users else event.get("agent_id")
    return f"{who}: {' '.join(str(word) for word in words if word)}"


def explain_url(line: LogLine, question: Question, version_key: int) -> str:
    """Return the URL of the page that explains the question as of then; empty if no page can."""
    parts, kind = parts_of(question), _KINDS.get(question.outs)
    context = "\n".join(fact.noted for fact in question.context)
    if not parts or kind is None or len(context) > _LONGEST_CONTEXT or line.context_facts_left_out:
        return ""
    if any(asked.ids is not None and len(asked.ids) != 1 for asked in parts):
        return ""
    actor, action, resource = parts
    fields = {
        "kind": kind, "actor": _field(actor), "action": written_action(action.one) if action.ids else "",
        "resource": _field(resource),
        "context": context, "revision": "" if line.revision is None else str(line.revision),
    }  # fmt: skip
    return page_url("ask", version_key, {name: fields[name] for name in NAMES if name in fields})


def _field(asked: Asked) -> str:
    return written(Value(asked.type, asked.one)) if asked.ids else asked.type


def _line_page(line: LogLine) -> dict[str, object]:
    versions = PolicyVersion.objects.filter(environment=line.environment, number=line.policy_version or 0)
    key = versions.values_list("pk", flat=True).first()
    body = json.dumps(line.question, indent=2, ensure_ascii=False)
    asked = given_by_line(line).questions[:_MOST_LINKS] if key else ()
    links = [(str(AskedTogether((each,))), explain_url(line, each, key or 0)) for each in asked]
    return {
        "row": _row(line, key),
        "question": _cut(spelled_out(body, "\n"), _LONGEST_BODY),
        "answer": json_text(line.answer),
        "links": [each for each in links if each[1]],
        "replays": [] if line.is_event else [("Then", _replayed(line, False)), ("Now", _replayed(line, True))],
    }


def _replayed(line: LogLine, is_now: bool) -> str:
    """Return what a replay as of then, or with current facts and policy, answers."""
    authzen = {f"/{path}": endpoint for path, endpoint in checks.authzen.views.endpoints.items()}
    try:
        found = replayed(line, checks.urls.endpoints | authzen, is_now)
    except (NotAsked, AuthzError, Unavailable) as reason:
        return f"Not replayed: {reason}"
    if not found.differs:
        return "Same answer"
    return f"Different answer: {shown(found.answer)}" if found.answer else f"Rejected: {found.refusal}"
