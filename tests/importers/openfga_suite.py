"""OpenFGA's public tests, carried over and asked of the engine.

    python -m tests.importers.openfga_suite CHECKOUT…

A CHECKOUT is a clone of a repository of theirs: the server's has models with tuples, and with what each check and each
list answers; others have store files with tests. Whatever is carried over has to answer the same; what is not is
counted, and named with `--verbose`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.standalone import set_up

if __name__ == "__main__":  # before what needs it is imported
    set_up(f"sqlite:///{tempfile.mkdtemp()}/unused.sqlite3")

from authz_project.importers.cel import NoEquivalent
from authz_project.importers.convert import carried
from authz_project.importers.files import read_yaml
from authz_project.importers.ir import (
    ContextValues,
    ExpectedCheck,
    Imported,
    ImportRejected,
    ImportReport,
    ModelKind,
    ObjectList,
    Place,
    SubjectList,
    Tuple,
)
from authz_project.importers.openfga import model_of_files, read_dsl, read_files, thing_of, tuple_of, values_of, who_of
from checks.asking.run import in_memory
from policy.errors import AuthzError
from policy.language.source import PolicyRejected
from tests.importers.asking import Carriage

FILES = ("assets/tests/consolidated_1_1_tests.yaml", "assets/tests/abac_tests.yaml")
SOMEWHERE = Place()


@dataclass
class Tally:
    right: int = 0
    wrong: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)  # what is said here where the original has an error
    not_carried: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        errors = ", ".join(f"{count} {answer}" for answer, count in sorted(self.errors.items()))
        return (
            f"{self.right} right, {len(self.wrong)} wrong, {len(self.not_carried)} not imported;"
            f" where the original answers with an error: {errors or 'none'}"
        )


def run(checkout: Path, tally: Tally) -> None:
    for name in FILES:
        if (checkout / name).exists():
            for test in read_yaml((checkout / name).read_text(encoding="utf-8"), name)["tests"]:
                _run_test(test, tally)
    for store in sorted(checkout.rglob("*.fga.yaml")):
        _run_store(store, tally)


# ---- store files -----------------------------------------------------------------------------------------------------


def _run_store(path: Path, tally: Tally) -> None:
    report = ImportReport()
    try:
        imported = read_files(str(path), [])
    except ImportRejected as reason:
        if path.parent.joinpath("expected_errors.json").exists():
            tally.errors["refused"] += 1
        else:
            tally.not_carried.append(f"{path}: {reason}")
        return
    carriage = Carriage(carried(replace(imported, scenarios=()), report, usersets=True))
    lost = [str(remark) for remark in report.of(ModelKind.LOST)]
    for scenario in imported.scenarios:
        for asked in scenario.expectations:
            _ask_of_store(f"{asked.place}: {scenario.name}", carriage, scenario.tuples, asked, lost, tally)


def _ask_of_store(
    name: str, carriage: Carriage, tuples: Sequence[Tuple], asked: ExpectedCheck | ObjectList | SubjectList,
    lost: list[str], tally: Tally,
) -> None:  # fmt: skip
    answer: bool | set[str]
    expected: bool | set[str]
    try:
        match asked:
            case ExpectedCheck(subject, relation, thing, held, context):
                expected, answer = held, carriage.check(subject, relation, thing, tuples, context)
            case ObjectList(subject, relation, type_name, listed, context):
                expected = {f"{type_name}:{each}" for each in listed}
                answer = carriage.objects(subject, relation, type_name, tuples, context)
            case SubjectList(thing, relation, type_name, of, users, context):
                expected = set(map(str, users))
                kind = f"{type_name}#{of}" if of else type_name
                answer = carriage.subjects(kind, relation, thing, tuples, context)
    except (NoEquivalent, AuthzError) as reason:
        tally.not_carried.append(f"{name}: {reason}")
        return
    _count(f"{name}: {asked.relation}", expected, answer, lost, tally)


def _count(said: str, expected: bool | set[str], answer: bool | set[str], lost: list[str], tally: Tally) -> None:
    if answer == expected:
        tally.right += 1
    elif lost and _is_less(answer, expected):
        tally.not_carried.append(f"{said}: {lost[0]}")
    else:
        tally.wrong.append(f"{said}: expected {expected}, got {answer}")


# ---- the server's own tests ------------------------------------------------------------------------------------------


def _run_test(test: Any, tally: Tally) -> None:
    tuples: list[Tuple] = []
    for number, stage in enumerate(test["stages"], 1):
        name = f"{test['name']}, stage {number}"
        tuples += [tuple_of(raw, SOMEWHERE) for raw in stage.get("tuples") or ()]
        _run_stage(name, stage, tuples, tally)


def _run_stage(name: str, stage: Any, tuples: list[Tuple], tally: Tally) -> None:
    asked = [*_asked(stage)]
    report = ImportReport()
    try:
        model = model_of_files([read_dsl(stage["model"], name)])
        carriage = Carriage(carried(Imported(model, tuple(tuples)), report, usersets=True))
    except (ImportRejected, PolicyRejected, AuthzError) as reason:
        tally.not_carried += [f"{name}: {reason}"] * len(asked)
        return
    lost = [str(remark) for remark in report.of(ModelKind.LOST)]
    for each in asked:
        _ask(name, carriage, each, lost, tally)


def _asked(stage: Any) -> Iterator[tuple[str, Any]]:
    for kind in ("checkAssertions", "listObjectsAssertions", "listUsersAssertions"):
        yield from ((kind, each) for each in stage.get(kind) or ())


def _ask(name: str, carriage: Carriage, question: tuple[str, Any], lost: list[str], tally: Tally) -> None:
    kind, asked = question
    request = asked.get("request") or asked["tuple"]
    said = f"{name}: {kind} {dict(request)} {dict(asked.get('context') or {})}"
    expected = _expected(kind, asked)
    try:
        answer = _answer(kind, carriage, asked, request)
    except (NoEquivalent, AuthzError, KeyError) as reason:
        if asked.get("errorCode"):
            tally.errors["refused"] += 1
        else:
            tally.not_carried.append(f"{said}: {type(reason).__name__} {reason}")
        return
    if asked.get("errorCode"):
        tally.errors["granted" if answer else "denied"] += 1
    else:
        _count(said, expected, answer, lost, tally)


def _expected(kind: str, asked: Any) -> bool | set[str]:
    expectation = asked.get("expectation")
    return bool(expectation) if kind == "checkAssertions" else set(expectation or ())


def _is_less(answer: bool | set[str], expected: bool | set[str]) -> bool:
    """Whether nothing is granted that is not in the original."""
    if isinstance(answer, set) and isinstance(expected, set):
        return answer <= expected
    return not answer


def _answer(kind: str, carriage: Carriage, asked: Any, request: Any) -> bool | set[str]:
    tuples = [tuple_of(raw, SOMEWHERE) for raw in asked.get("contextualTuples") or ()]
    context: ContextValues = values_of(asked.get("context"), SOMEWHERE)
    if kind == "checkAssertions":
        who, thing = who_of(request["user"], SOMEWHERE), thing_of(request["object"], SOMEWHERE)
        return carriage.check(who, request["relation"], thing, tuples, context)
    if kind == "listObjectsAssertions":
        who = who_of(request["user"], SOMEWHERE)
        return carriage.objects(who, request["relation"], request["type"], tuples, context)
    thing = thing_of(request["object"], SOMEWHERE)
    found: set[str] = set()
    for each in request["filters"]:
        found |= carriage.subjects(each, request["relation"], thing, tuples, context)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("checkouts", nargs="+", type=Path, help="clones of repositories")
    parser.add_argument("--verbose", action="store_true", help="name each question that is not imported")
    args = parser.parse_args()
    tally = Tally()
    with in_memory():
        for checkout in args.checkouts:
            run(checkout, tally)
    for each in [*tally.wrong, *(tally.not_carried if args.verbose else [])]:
        print(each)
    print(tally)
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
