"""List who gained and lost access between two moments, or who had access at one."""

import csv
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from io import StringIO
from typing import Any

import orjson
from django.core.management.base import CommandError

from checks.ask_pages.question import written
from checks.asking.ask import Trusted
from checks.asking.question import Asked, allow
from checks.compare.review import Access, AccessState, NotAnswered, Review, ReviewFilter, moments_reviewed
from checks.compare.review_page import described, looked_text, shown_action
from checks.compare.review_walk import all_lines, counted
from checks.explain.cases import ANY
from checks.explain.explain import Explanation, explain, explanation_to_json, explanation_to_text, value_to_json
from facts.wire import value_from_text, without_formula
from policy.management.command import PolicyCommand
from policy.models import Environment
from policy.moments import AsOf, Moment, as_of_from_text
from policy.publishing import filename_of
from policy.values import STRING, Value

NOT_ANSWERED = "not answered"
_SIGNS = {AccessState.GAINED: "+", AccessState.LOST: "-", AccessState.KEPT: "=", AccessState.HAS: " "}
_COLUMNS = ("state", "actor", "action", "resource", "note")


class Command(PolicyCommand):
    help = "List who gained and lost access between two moments, or with --at, who had access at one."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        when = "a revision or a time, e.g. 2026-11-03T14:02:11Z"
        first = parser.add_mutually_exclusive_group(required=True)
        start = first.add_argument("--from", dest="start", metavar="WHEN", help=f"Compare from {when}.")
        first.add_argument("--at", metavar="WHEN", help="List who had access at this moment.")
        end = parser.add_argument("--to", dest="end", metavar="WHEN", help="Compare to this moment (default: now).")
        self.only_with(end, start)
        parser.add_argument("--actor-type", default="", metavar="TYPE", help="Only actors of this type.")
        parser.add_argument("--resource-type", default="", metavar="TYPE", help="Only resources of this type.")
        parser.add_argument("--actor", default="", metavar="ACTOR", help="Only this actor, e.g. User:alice.")
        parser.add_argument("--action", default="", metavar="ACTION", help="Only this action.")
        parser.add_argument(
            "--format", choices=[*_FORMATS], default="table", help="Output format (default: %(default)s)."
        )
        parser.add_argument("--explain", action="store_true", dest="explains", help="Print the proof of each line.")

    def act(
        self, environment: Environment, *, start: str | None, end: str | None, at: str | None, actor_type: str,
        action: str, resource_type: str, actor: str, format: str, explains: bool, **options: Any,
    ) -> None:  # fmt: skip
        if at is not None:
            moments = moments_reviewed(environment.pk, as_of_from_text(at, "--at"), called=("--at",))
        else:
            ends = _when(start, "--from"), _when(end, "--to")
            moments = moments_reviewed(environment.pk, *ends, called=("--from", "--to"))
        review = Review(environment.pk, moments, _wanted(actor_type, action, resource_type, actor))
        explainer = _Explainer(environment.pk, moments, self.is_coloured) if explains else None
        notes = self.stdout if format == "table" else self.stderr
        notes.write(described(moments))
        counts: Counter[str] = Counter()
        if format == "csv":
            self.stdout.write(_csv_row(*_COLUMNS))
        with self.progress("reviewing access") as bar:
            for line in all_lines(review, lambda cursor: bar.tell(note=looked_text(cursor))):
                counts[line.state if isinstance(line, Access) else NOT_ANSWERED] += 1
                with bar.aside():
                    self.stdout.write(_FORMATS[format](line, explainer))
        notes.write(counted(counts, len(moments)))
        if counts[NOT_ANSWERED]:
            raise CommandError(
                f"The review is incomplete: lines marked ! could not be listed completely ({counts[NOT_ANSWERED]:,})."
            )


def _wanted(actor_type: str, action: str, resource_type: str, actor: str) -> ReviewFilter:
    if not actor:
        return ReviewFilter(actor_type, action, resource_type)
    only = value_from_text(actor)
    if actor_type not in ("", only.type):
        raise CommandError(f"--actor {actor} is not of --actor-type {actor_type}.")
    return ReviewFilter(only.type, action, resource_type, only.id)


def _when(text: str | None, option: str) -> AsOf | None:
    return None if text is None else as_of_from_text(text, option)


class _Explainer:
    """Explains a line as of each moment: why it held, or why not."""

    def __init__(self, environment_id: int, moments: tuple[Moment, ...], is_coloured: bool):
        self.environment_id, self.moments, self.is_coloured = environment_id, moments, is_coloured
        self.filename = lru_cache(64)(partial(filename_of, environment_id))

    def sides(self, line: Access) -> Iterator[tuple[str, Explanation]]:
        titles = ("then",) if len(self.moments) == 1 else ("before", "after")
        for title, moment in zip(titles, self.moments):
            actor, action, resource = (Asked(each.type, (each.id,)) for each in line[1:])
            yield title, explain(Trusted(self.environment_id), allow(actor, action, resource), moment)

    def text(self, line: Access, is_coloured: bool) -> Iterator[str]:
        for title, explanation in self.sides(line):
            first, *others = explanation_to_text(explanation, self.filename(explanation.version), is_coloured)
            yield f"{title}: {first}"
            yield from others


# ---- formats -------------------------------------------------------------------------------------------------------


def _table(line: Access | NotAnswered, explainer: _Explainer | None) -> str:
    if isinstance(line, NotAnswered):
        return f"! {NOT_ANSWERED}  {line}"
    actor, action, resource = _shown(line)
    first = f"{_SIGNS[line.state]} {line.state:<6}  {actor:<24} {action:<12} {resource}"
    return "\n      ".join([first, *(explainer.text(line, explainer.is_coloured) if explainer else ())])


def _csv(line: Access | NotAnswered, explainer: _Explainer | None) -> str:
    if isinstance(line, NotAnswered):
        return _csv_row(NOT_ANSWERED, *_shown(_about(line)), str(line))
    return _csv_row(line.state, *_shown(line), "\n".join(explainer.text(line, False)) if explainer else "")


def _csv_row(*cells: str) -> str:
    written = StringIO()
    csv.writer(written, lineterminator="").writerow(map(without_formula, cells))
    return written.getvalue()


def _json(line: Access | NotAnswered, explainer: _Explainer | None) -> str:
    """Return an object; an id of null stands for every value, as in the API."""
    state, actor, action, resource = line if isinstance(line, Access) else _about(line)
    found: dict[str, object] = {"state": state, "actor": value_to_json(actor), "action": action.id or None}
    found["resource"] = value_to_json(resource)
    if isinstance(line, NotAnswered):
        found |= {"resources": line.resources or None, "reason": line.reason}
    elif explainer:
        found |= {title: explanation_to_json(explanation, False) for title, explanation in explainer.sides(line)}
    return orjson.dumps(found).decode()


def _about(line: NotAnswered) -> Access:
    """Return a line about all that was not answered."""
    kind = line.kind
    return Access(NOT_ANSWERED, Value(kind.actor, ANY), Value(STRING, kind.action or ANY), Value(kind.resource, ANY))


def _shown(line: Access) -> tuple[str, str, str]:
    return written(line.actor), shown_action(line.action), written(line.resource)


_FORMATS: dict[str, Callable[[Access | NotAnswered, _Explainer | None], str]] = {
    "table": _table,
    "csv": _csv,
    "json": _json,
}
