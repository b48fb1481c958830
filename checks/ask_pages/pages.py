"""Data for the pages of checks."""

import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.http import QueryDict
from django.urls import reverse

from checks.analysis.questions import ways_to_allow
from checks.ask_pages.links import copies, page_lines, question_html
from checks.ask_pages.question import (
    BY_NAME,
    KINDS,
    Incomplete,
    Link,
    Note,
    PageQuestion,
    asked_again,
    filled,
    page_url,
    program_or_none,
    question_of,
    suggestions,
    tabs,
    unknown_names,
    unmentioned,
    written,
    written_action,
)
from checks.asking import run
from checks.asking.question import Page, Question
from checks.asking.snapshot import Snapshot, snapshot, trial
from checks.errors import QueryTooSlow
from checks.explain.cases import ANY
from checks.explain.explain import ExplainedGoal, explain_calls
from facts.wire import MAX_ID_BYTES
from policy import rules
from policy.core.clock import time_of
from policy.core.pagination import Listing, ListPage, key_of, natural_key
from policy.errors import AuthzError, Cancelled
from policy.language.source import PolicyRejected
from policy.models import Environment, PolicyVersion
from policy.moments import Moment
from policy.pages.highlight import excerpts_of_problems
from policy.values import MAX_VERSION, Value, whole_number

ShownQuestion = dict[str, object]  # data for templates

# ---- listing ------------------------------------------------------------------------------------------------------
# A page of a list of answers; the database counts the total.
#
# The target may have several types, each with a question of its own, whose answers are concatenated.

PAGE = 100  # answers
COUNTING = 0.1  # seconds, after which it is only known that there are more
_LAST = chr(0x10FFFF) * (MAX_ID_BYTES // 4 + 1)  # sorts after every id


class AnswerKey(NamedTuple):
    """An answer: its type, and its id, which is None if it stands for every value and so precedes all others."""

    type: str
    text: str | None

    @property
    def value(self) -> Value:
        return Value(self.type, ANY if self.text is None else self.text)


@dataclass(frozen=True)
class Listed:
    """A page of answers; an id of ANY stands for every value of its type."""

    page: ListPage[AnswerKey]
    filter: str  # a text that all answers contain
    total: int | None  # of the answers with an id; None: counting takes too long
    start: int | None  # the number of the first of these on this page, from 1
    every: tuple[str, ...] = ()  # types of which every value is an answer, on this page or on another

    @property
    def is_whole(self) -> bool:
        return not (self.page.has_previous or self.page.has_next)

    @property
    def named(self) -> int:
        return sum(each.text is not None for each in self.page.rows)


def listed(session: Snapshot, questions: Sequence[Question], asked: PageQuestion) -> Listed:
    """Return the page that a URL's fields name, and the number of answers."""
    by_type = {each.variables[asked.kind.column].type: each for each in questions}
    found = _Answers(session, by_type, asked.fields.get("filter", ""))
    return found.listed(*(key_of(asked.fields.get(name), asked.of) for name in ("after", "before")))


@dataclass(frozen=True)
class _Answers:
    session: Snapshot
    questions: Mapping[str, Question]  # by type
    filter: str

    def listed(self, after: Sequence[Any] | None, before: Sequence[Any] | None) -> Listed:
        keys = (AnswerKey(*key) if key and key[0] in self.questions else None for key in (after, before))
        found = Listing(self._after, self._before).page(PAGE, *keys)
        places = {name: place for place, name in enumerate(self.questions)}
        page = found.in_order(lambda each: (places[each.type], natural_key(each.text)))
        every = {each.type for each in page.rows if each.text is None}
        if not (page.has_previous or page.has_next):
            return Listed(page, self.filter, len(page.rows) - len(every), 1, self._in_order(every))
        total = start = None
        with suppress(QueryTooSlow, Cancelled), run.limited(COUNTING):
            for name in self.questions:
                every |= {name} if self._has_every(name) else set()
            total, start = self._counted(page.rows[0] if page.rows else None)
        return Listed(page, self.filter, total, start, self._in_order(every))

    def _in_order(self, types: Set[str]) -> tuple[str, ...]:
        return tuple([name for name in self.questions if name in types])

    def _after(self, key: AnswerKey | None, most: int) -> list[AnswerKey]:
        names, found = list(self.questions), list[AnswerKey]()
        for name in names[names.index(key.type) :] if key else names:
            if len(found) < most:
                after = key.text or "" if key and key.type == name else None
                found += self._read(name, Page(most - len(found), after, None, self.filter))
        return found

    def _before(self, key: AnswerKey, most: int) -> list[AnswerKey]:
        names, found = list(self.questions), list[AnswerKey]()
        for name in names[names.index(key.type) :: -1]:
            before = key.text if key.type == name else _LAST
            if before is not None and len(found) < most:
                found = [*self._read(name, Page(most - len(found), None, before, self.filter)), *found]
                if len(found) < most and self._has_every(name):
                    found = [AnswerKey(name, None), *found]
        return found

    def _has_every(self, name: str) -> bool:
        return any(each.text is None for each in self._read(name, Page(1)))

    def _read(self, name: str, page: Page) -> list[AnswerKey]:
        return [AnswerKey(name, text) for (text,) in self.session.page(self.questions[name], page)]

    def _counted(self, first: AnswerKey | None) -> tuple[int, int | None]:
        """Return the number of all answers, and that of the page's first one."""
        total = before = 0
        for name, question in self.questions.items():
            if first is not None and name == first.type:
                count, sooner = self.session.count(question, self.filter, first.text or "")
                before = total + sooner
            else:
                count, _ = self.session.count(question, self.filter, None)
            total += count
        return total, before + 1 if first else None


# ---- answers ------------------------------------------------------------------------------------------------------
# Answers the question of a page, with notes about unknown names in it, and the time that it took.


def answered(asked: PageQuestion, origin: str, with_ways: bool = False) -> ShownQuestion:
    """Return the data of the answer; `with_ways` also searches for what would allow what is denied."""
    begun = time.perf_counter()
    with _session(asked) as session:
        questions = asked.questions(session.program)
        found: Listed | ExplainedGoal
        if asked.kind.column:
            found = listed(session, questions, asked)
        else:
            (found,) = explain_calls(session, questions[0])
        taken = time.perf_counter() - begun
        notes = [*unknown_names(session, asked, questions), *_unmentioned(session, asked)]
        shown: ShownQuestion = {
            "answered": True,
            "asked": asked,
            "took": f"{taken * 1000:,.0f}" if taken >= 0.01 else f"{taken * 1000:.1f}",
            "notes": notes,
            "moment": asked.moment and _moment(asked.environment_id, asked.moment),
            "copies": copies(asked, questions, origin),
            "unused": session.unused,
        }
        if isinstance(found, Listed):
            of_list = _listed(asked, questions, found)
            text = " ".join(asked.fields[field.name] for field in asked.kind.fields if field.name in asked.fields)
            return shown | {"listed": of_list, "title": f"{of_list['headline']}: {text}"}
        if not found.holds and with_ways and asked.moment is None:
            shown["ways"] = ways_to_allow(session, questions[0])
        return shown | _explained(asked, questions, found, notes)


def _unmentioned(session: Snapshot, asked: PageQuestion) -> Iterator[Note]:
    in_context = {value for fact in asked.context for value in fact.args}
    values = dict.fromkeys(each for each in asked.values.values() if each not in in_context)

    def link(value: Value, text: str) -> Link:
        return asked.link(text, **{name: text for name, each in asked.values.items() if each == value})

    return unmentioned(session, asked.environment_id, values, link)


def _session(asked: PageQuestion) -> AbstractContextManager[Snapshot]:
    """Return a session for the question's version, or for its draft if it has one."""
    if asked.text:
        return trial(asked.environment_id, rules.compile_text(asked.text), asked.context, asked.moment)
    return snapshot(asked.environment_id, asked.version.pk, asked.context, frozenset(), asked.moment)


# ---- about --------------------------------------------------------------------------------------------------------
# The questions on the page of a value.


def questions_about(environment: Environment, value: Value) -> dict[str, list[tuple[str, list[Link]]]]:
    """Return links to lists of what a value may do, and of who may do what to it, by the active policy.

    Each heading has rows with a type of resources, which is empty if the value is the resource, and its actions.
    """
    version = environment.policy_version
    program = program_or_none(version) if version else None
    if version is None or program is None or value.type not in program.types:
        return {}
    text, own = written(value), program.types[value.type]

    def link(action: str, **fields: str) -> Link:
        return Link(action, page_url("ask", version.pk, asked_again({"action": written_action(action), **fields})))

    found: dict[str, list[tuple[str, list[Link]]]] = {}
    if own.kind == "actor":
        found["Resources it can access"] = [
            (name, [link(action, kind="list", actor=text, resource=name) for action in each.permissions])
            for name, each in sorted(program.types.items())
            if each.permissions
        ]
    if own.permissions:
        actions = [link(action, kind="who", resource=text) for action in own.permissions]
        found["Actors with access"] = [("", actions)]
    return found


# ---- pages --------------------------------------------------------------------------------------------------------
# Data for the page of a check: the form, the answer with links to all that it mentions, and links to other pages.

_MOST_VERSIONS = 200
PageFields = Mapping[str, str]


# ---- URLs ----------------------------------------------------------------------------------------------------------


def short_address(version: PolicyVersion, sent: QueryDict) -> str | None:
    """Return the URL to redirect a submitted form to: that of the chosen version, with only the nonempty fields.

    None if the URL is already short, or if there is no such version.
    """
    chosen = sent.get("version", str(version.pk))
    is_other = chosen != str(version.pk)
    is_long = is_other or "environment" in sent or not all(sent.values())
    if not is_long or (is_other and version_chosen(chosen) is None):
        return None
    return page_url("ask", int(chosen), filled(sent.dict()))  # type: ignore[arg-type]


def version_chosen(text: str) -> PolicyVersion | None:
    return PolicyVersion.objects.defer("source").filter(pk=whole_number(text, MAX_VERSION) or 0).first()


# ---- the page ------------------------------------------------------------------------------------------------------


def ask_page(
    version: PolicyVersion, fields: PageFields, text: str, origin: str, with_ways: bool = False
) -> ShownQuestion:
    """Return the page's data. `text` is a draft to use in place of the version's policy, without publishing it.

    `with_ways` searches for what would allow what is denied.
    """
    kind = BY_NAME.get(fields.get("kind", ""), KINDS[0])
    program = program_or_none(version)
    suggested = suggestions(version.environment_id, program) if program else {}
    form: ShownQuestion = {
        "kind": kind,
        "tabs": tabs(version, fields, kind.name),
        "fields": [(field, fields.get(field.name, "")) for field in kind.fields],
        "sent": fields,
        "suggested": suggested,
        "versions": versions_to_choose(version),
        "text": text,
        "source": text or version.source,
        "here": page_url("ask", version.pk, fields),
        "environment": version.environment,
    }
    if not any(field.name in fields for field in kind.fields) and kind.name == fields.get("kind", kind.name):
        return form
    try:
        asked = question_of(version, fields, text)
        return form | answered(asked, origin, with_ways)
    except Incomplete as reason:
        return form | {"incomplete": reason.message}
    except AuthzError as reason:
        return form | trouble_of(reason)


def trouble_of(reason: AuthzError) -> ShownQuestion:
    """Return the data for an error: its message, or excerpts of the text if a policy is rejected."""
    if isinstance(reason, PolicyRejected):
        return {"excerpts": excerpts_of_problems(reason.source, reason.problems)}
    return {"trouble": reason.message}


def versions_to_choose(chosen: PolicyVersion) -> list[PolicyVersion]:
    """Return the chosen version, the latest ones of its environment, and the active ones of the others."""
    versions = PolicyVersion.objects.defer("source").select_related("environment")
    own = list(versions.filter(environment=chosen.environment_id).order_by("-number")[:_MOST_VERSIONS])
    active = Environment.objects.exclude(pk=chosen.environment_id).values("policy_version")
    others = versions.filter(pk__in=active).order_by("environment__slug")[:_MOST_VERSIONS]
    return [*([] if chosen in own else [chosen]), *own, *others]


# ---- the answer ----------------------------------------------------------------------------------------------------


def _moment(environment_id: int, moment: Moment) -> Link:
    url = reverse("admin:authz_facts_signature_revision", args=[environment_id, moment.revision])
    return Link(f"revision {moment.revision}, {time_of(moment.at):%Y-%m-%dT%H:%M:%SZ}", url if moment.revision else "")


def _explained(
    asked: PageQuestion, questions: Sequence[Question], goal: ExplainedGoal, notes: Sequence[Note]
) -> ShownQuestion:
    slug = asked.version.environment.slug
    is_strange = any(note.known for note in notes)  # the goal's own note would repeat that
    return {
        "goal": goal,
        "question": question_html(questions, slug),
        "goal_note": "" if is_strange else goal.note,
        "gap": goal.gap,
        "lines": page_lines(goal),
        "title": f"{'Allowed' if goal.holds else 'Denied'}: {goal.text}",
    }


# ---- lists ---------------------------------------------------------------------------------------------------------


def _listed(asked: PageQuestion, questions: Sequence[Question], found: Listed) -> ShownQuestion:
    version, again = asked.version.pk, asked_again(asked.fields)
    return {
        "headline": _headline(found, asked.kind.column),
        "question": question_html(questions, asked.version.environment.slug) if questions else "",
        "every": found.every,
        "answers": [(each, _why_url(asked, each.value)) for each in found.page.rows],
        "range": _range(found),
        "pager": found.page.pager(
            asked.of, tuple, lambda fields: page_url("ask", version, again | {"filter": found.filter} | fields)
        ),
        "filter": found.filter,
        "is_filterable": bool(found.filter) or not found.is_whole or len(found.page.rows) > 10,
        "unfiltered": page_url("ask", version, again),
        "hidden": list(again.items()),
    }


def _headline(found: Listed, column: str) -> str:
    if found.every:
        return " and ".join(f"Every {'action' if column == 'action' else name}" for name in found.every)
    if found.total is None:
        return f"More than {max(found.named, 1):,} {column}s"
    count = f"{found.total:,}" if found.total else "No"
    return f"{count} {column}{'' if found.total == 1 else 's'}"


def _range(found: Listed) -> str:
    if not found.named or found.is_whole:
        return ""
    if found.start is None or found.total is None:
        return f"{found.named:,} shown; there are more"
    return f"{found.start:,} to {found.start + found.named - 1:,} of {found.total:,}"


def _why_url(asked: PageQuestion, answer: Value) -> str:
    text = written_action(answer.id) if asked.kind.column == "action" else written(answer)
    again = asked_again(asked.fields, kind="authorize", **{asked.kind.column: text})
    return page_url("ask", asked.version.pk, again)
