"""Who gained and who lost access between two moments, or who had it at one: the list that an auditor signs."""

import csv
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Protocol

import orjson
from django.core.management.base import CommandError, OutputWrapper

from checks.asking.askers import Trusted
from checks.asking.question import Asked, allow
from checks.compare.review import Access, AccessState, NotAnswered, Review, Wanted, moments_reviewed
from checks.compare.review_page import counted, described, looked_text, shown, shown_action
from checks.compare.review_walk import all_lines
from checks.explain.cases import ANY
from checks.explain.explain import Explanation, explain
from checks.explain.output import explanation_to_json, explanation_to_text
from facts.notation import value_from_text, without_formula
from policy.management.command import PolicyCommand
from policy.models import Environment, PolicyVersion
from policy.moments import AsOf, Moment, as_of_from_text
from policy.values import Value

NOT_ANSWERED = "not answered"
_SIGNS = {AccessState.GAINED: "+", AccessState.LOST: "-", AccessState.KEPT: "=", AccessState.HAS: " "}


class Command(PolicyCommand):
    help = "List who gained and who lost access between two moments, or (--at) who had what. WHEN is like --as-of."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        when = "a revision's number, or a time such as 2026-11-03T14:02:11Z"
        first = parser.add_mutually_exclusive_group(required=True)
        first.add_argument("--from", dest="start", metavar="WHEN", help=f"compare from {when}")
        first.add_argument("--at", metavar="WHEN", help="list who had what then, instead of what changed")
        parser.add_argument("--to", dest="end", metavar="WHEN", help="compare up to then (default: now)")
        parser.add_argument("--actor-type", default="", metavar="TYPE")
        parser.add_argument("--resource-type", default="", metavar="TYPE")
        parser.add_argument("--actor", default="", metavar="ACTOR", help="only this one, such as User:alice")
        parser.add_argument("--action", default="", metavar="ACTION")
        parser.add_argument("--format", choices=("table", "csv", "json"), default="table", help="json is one a line")
        parser.add_argument("--explain", action="store_true", dest="explains", help="with the proof of each line")

    def act(
        self, environment: Environment, *, start: str | None, end: str | None, at: str | None, actor_type: str,
        action: str, resource_type: str, actor: str, format: str, explains: bool, **options: Any,
    ) -> None:  # fmt: skip
        if at is not None and end is not None:
            raise CommandError("--to goes with --from, not with --at")
        if at is not None:
            moments = moments_reviewed(environment.pk, as_of_from_text(at, "--at"), called=("--at",))
        else:
            ends = _when(start, "--from"), _when(end, "--to")
            moments = moments_reviewed(environment.pk, *ends, called=("--from", "--to"))
        bar = self.progress("reviewing access")
        wanted = _wanted(actor_type, action, resource_type, actor)
        review = Review(environment.pk, moments, wanted)
        writer: _Writer = _WRITERS[format](self.stdout, _Explainer(environment.pk, moments) if explains else None)
        notes = self.stdout if format == "table" else self.stderr
        notes.write(described(moments))
        counts: Counter[str] = Counter()
        with bar:
            for line in all_lines(review, lambda cursor: bar.tell(note=looked_text(cursor))):
                with bar.aside():
                    writer.write(line)
                counts[line.state if isinstance(line, Access) else NOT_ANSWERED] += 1
        notes.write(counted(counts, len(moments)))
        if counts[NOT_ANSWERED]:
            raise CommandError(f"{counts[NOT_ANSWERED]} kinds of access are not answered whole; see their lines")


def _wanted(actor_type: str, action: str, resource_type: str, actor: str) -> Wanted:
    if not actor:
        return Wanted(actor_type, action, resource_type)
    only = value_from_text(actor)
    if actor_type not in ("", only.type):
        raise CommandError(f"--actor {actor} is no {actor_type}")
    return Wanted(only.type, action, resource_type, only.id)


def _when(text: str | None, option: str) -> AsOf | None:
    return None if text is None else as_of_from_text(text, option)


class _Explainer:
    """Explains a line as of each moment: why it held, or what stood in the way."""

    def __init__(self, environment_id: int, moments: tuple[Moment, ...]):
        self.environment_id = environment_id
        self.moments = moments
        self.filename = lru_cache(64)(self._filename)

    def sides(self, line: Access) -> Iterator[tuple[str, Explanation]]:
        titles = ("then",) if len(self.moments) == 1 else ("before", "after")
        for title, moment in zip(titles, self.moments):
            actor, action, resource = (Asked(each.type, (each.id,)) for each in line[1:])
            yield title, explain(Trusted(self.environment_id), allow(actor, action, resource), moment)

    def text(self, line: Access, is_coloured: bool = False) -> Iterator[str]:
        for title, explanation in self.sides(line):
            first, *others = explanation_to_text(explanation, self.filename(explanation.version), is_coloured)
            yield f"{title}: {first}"
            yield from others

    def _filename(self, number: int | None) -> str:
        if number is None:
            return ""
        versions = PolicyVersion.objects.filter(environment=self.environment_id, number=number)
        return versions.values_list("filename", flat=True).first() or ""


class _Writer(Protocol):
    def write(self, line: Access | NotAnswered) -> None: ...


class _Table:
    def __init__(self, stream: OutputWrapper, explainer: _Explainer | None):
        self.stream = stream
        self.explainer = explainer

    def write(self, line: Access | NotAnswered) -> None:
        if isinstance(line, NotAnswered):
            self.stream.write(f"! {NOT_ANSWERED}  {line}")
            return
        columns = (shown(line.actor), shown_action(line.action), shown(line.resource))
        self.stream.write(f"{_SIGNS[line.state]} {line.state:<6}  {columns[0]:<24} {columns[1]:<12} {columns[2]}")
        if self.explainer:
            for text in self.explainer.text(line, self.stream.isatty()):
                self.stream.write(f"      {text}")


class _Csv:
    def __init__(self, stream: OutputWrapper, explainer: _Explainer | None):
        self.csv = csv.writer(_Raw(stream), lineterminator="\n")
        self.explainer = explainer
        self.csv.writerow(("state", "actor", "action", "resource", "note"))

    def write(self, line: Access | NotAnswered) -> None:
        if isinstance(line, NotAnswered):
            kind = line.kind
            action = "*" if kind.action is None else shown_action(Value("String", kind.action))
            self._write(NOT_ANSWERED, f"{kind.actor}:*", action, f"{kind.resource}:*", str(line))
        else:
            note = "\n".join(self.explainer.text(line)) if self.explainer else ""
            columns = (shown(line.actor), shown_action(line.action), shown(line.resource))
            self._write(line.state, *columns, note)

    def _write(self, *cells: str) -> None:
        self.csv.writerow(map(without_formula, cells))


class _Raw:
    """Writes to a stream of Django, without the newline that the stream would add."""

    def __init__(self, stream: OutputWrapper):
        self.stream = stream

    def write(self, text: str) -> None:
        self.stream.write(text, ending="")


class _Json:
    """Writes one JSON object per line; an id of null stands for every value, as in the interface."""

    def __init__(self, stream: OutputWrapper, explainer: _Explainer | None):
        self.stream = stream
        self.explainer = explainer

    def write(self, line: Access | NotAnswered) -> None:
        self.stream.write(orjson.dumps(self._json(line)).decode())

    def _json(self, line: Access | NotAnswered) -> dict[str, object]:
        if isinstance(line, NotAnswered):
            kind = line.kind
            asked: dict[str, object] = {"actor": _value(Value(kind.actor, ANY)), "action": kind.action}
            asked["resource"] = _value(Value(kind.resource, ANY))
            return {"state": NOT_ANSWERED, **asked, "resources": line.resources or None, "reason": line.reason}
        found: dict[str, object] = {"state": line.state, "actor": _value(line.actor), "action": line.action.id or None}
        found["resource"] = _value(line.resource)
        for title, explanation in self.explainer.sides(line) if self.explainer else ():
            found[title] = explanation_to_json(explanation, False)
        return found


def _value(value: Value) -> dict[str, str | None]:
    return {"type": value.type, "id": value.id or None}


_WRITERS: dict[str, Callable[[OutputWrapper, _Explainer | None], _Writer]] = {
    "table": _Table,
    "csv": _Csv,
    "json": _Json,
}
