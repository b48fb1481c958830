"""Convert the suites of a checkout of SpiceDB with `import_model spicedb`, and repeat all their questions.

    python -m tests.importers.spicedb_suite PATH_TO_A_CHECKOUT

For each validation file: every assertion in it; and whether each subject has each relation and permission of each
object, without a context and with each that the file mentions. What is right is worked out by `spicedb_meaning`, from
what was parsed. The questions go the same way as the file: as assertions of a second validation file, which the command
makes tests of the policy of.

Prints what came of each file, and ends with 1 if an answer is wrong. Where something was not imported, an answer
may be "denied" that is "allowed" there: these are counted apart. The other way round is wrong everywhere.
"""

from __future__ import annotations

import io
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.standalone import set_up

if __name__ == "__main__":  # before what needs it is imported
    set_up(f"sqlite:///{tempfile.mkdtemp()}/unused.sqlite3")

from django.core.management.base import CommandError

from authz_project.importers.ir import ContextValues, Imported, ImportRejected, Thing, Who, relations_of
from authz_project.importers.spicedb import imported
from checks.asking.run import in_memory
from tests.importers.spicedb_meaning import Answer, World

FOLDERS = (
    "internal/services/integrationtesting/testconfigs",
    "internal/services/steelthreadtesting/testdata",
    "pkg/validationfile/testdata",
    "cmd/spicedb/integration/testdata",
    "pkg/cmd/server/testdata",
    "development",
)
MOST_OBJECTS, MOST_SUBJECTS = 60, 40  # of one type, in files that are there for their size
AT_ONCE = 2_000  # questions in one policy
MOST_TUPLES = 5_000
NOBODY, NOTHING = "nobody_at_all", "nothing_at_all"
_OTHERWISE = ", got "  # in what is said of an assertion that fails
_EXPECTED = {True: "assertTrue", False: "assertFalse", None: "assertCaveated"}


@dataclass
class Outcome:
    """What came of a file."""

    right: int = 0
    asserted: int = 0  # of those that are right, the file's own
    undecided: int = 0  # of those that are right, the ones that caveats decide there: denied here
    lacking: list[str] = field(default_factory=list)  # denied here, for what was not imported
    wrong: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.right += other.right
        self.asserted += other.asserted
        self.undecided += other.undecided
        self.lacking += other.lacking
        self.wrong += other.wrong


# ---- questions ------------------------------------------------------------------------------------------------------


def questions(read: Imported) -> Iterator[tuple[str, Answer]]:
    """Every question that a file's names give, as an assertion, and its answer."""
    caveats = {each.name: each for each in read.model.conditions}
    world = World({each.name: each for each in read.model.types}, caveats, read.tuples)
    for context in contexts(read):
        for thing in objects(read):
            relations = world.types[thing.type].relations
            for subject in subjects(read):
                for member in relations:
                    given = f" with {json.dumps(dict(context))}" if context else ""
                    asked = Who(thing.type, thing.id, member.name)
                    yield f"{asked}@{subject}{given}", world.holds(asked, subject, dict(context))


def contexts(read: Imported) -> list[ContextValues]:
    found: dict[str, ContextValues] = {"{}": ()}
    for scenario in read.scenarios:
        for asserted in scenario.expectations:
            found.setdefault(json.dumps(dict(asserted.context), sort_keys=True), asserted.context)
    return list(found.values())


def objects(read: Imported) -> list[Thing]:
    found = {each.object for each in read.tuples}
    found |= {Thing(each.subject.type, each.subject.id) for each in read.tuples if not each.subject.is_everybody}
    with_members = {each.name for each in read.model.types if each.relations}
    found |= {Thing(name, NOTHING) for name in with_members}
    return _some([each for each in found if each.type in with_members], MOST_OBJECTS)


def subjects(read: Imported) -> list[Who]:
    found = {each.subject for each in read.tuples if not each.subject.relation and not each.subject.is_everybody}
    taken = {
        subject.type
        for _, relation in relations_of(read.model)
        for subject in relation.subjects
        if not subject.relation
    }
    return _some([*found, *(Who(name, NOBODY) for name in taken)], MOST_SUBJECTS)


def _some(found: Sequence, most: int) -> list:
    by_type: dict[str, list] = {}
    for each in sorted(found, key=str):
        by_type.setdefault(each.type, []).append(each)
    return [each for of_type in by_type.values() for each in of_type[-most:]]


# ---- asking ---------------------------------------------------------------------------------------------------------


def carried(path: Path, folder: Path) -> Outcome:
    """What comes of one file."""
    read = imported(path)
    if len(read.tuples) > MOST_TUPLES:
        return Outcome(remarks=[f"left out: {len(read.tuples):,} relationships are more than a test of a policy holds"])
    outcome = asked_at_once(path, [], read, folder)
    everything = list(questions(read))
    for start in range(0, len(everything), AT_ONCE):
        outcome.add(asked_at_once(path, everything[start : start + AT_ONCE], read, folder))
    return outcome


def asked_at_once(path: Path, asked: list[tuple[str, Answer]], read: Imported, folder: Path) -> Outcome:
    """Asks the file's own assertions, or these questions."""
    from django.core.management import call_command

    from checks.testing import run
    from policy.rules import compile_text

    files = [str(path)]
    if asked:
        files = [str(without_assertions(path, folder)), str(folder / "asked.yaml")]
        by_answer = {name: [each for each, answer in asked if _EXPECTED[answer] == name] for name in _EXPECTED.values()}
        Path(files[1]).write_text(yaml.safe_dump({"assertions": by_answer}, width=100_000))
    policy, facts, said = folder / "main.polar", folder / "facts.jsonl", io.StringIO()
    for each in (policy, facts):
        each.unlink(missing_ok=True)
    call_command(
        "import_model", "spicedb", *files, partial=True, policy=str(policy), facts=str(facts),
        stdout=io.StringIO(), stderr=said,
    )  # fmt: skip
    outcome = Outcome(remarks=said.getvalue().splitlines())
    for test in run(compile_text(policy.read_text())).tests:
        outcome.right += test.passed
        outcome.wrong += test.failures
    for line in [line for line in outcome.remarks if _OTHERWISE in line]:  # answers that the command itself found wrong
        is_granted = line.endswith("expected false, got true")
        (outcome.lacking if has_lost(outcome) and not is_granted else outcome.wrong).append(line)
        outcome.remarks.remove(line)
    if asked:
        outcome.undecided = sum(answer is None for _, answer in asked)
    else:
        outcome.asserted = outcome.right
    return outcome


def has_lost(outcome: Outcome) -> bool:
    return any("not imported: " in line and _OTHERWISE not in line for line in outcome.remarks)


def without_assertions(path: Path, folder: Path) -> Path:
    """The same file, which asserts nothing."""
    raw = yaml.safe_load(path.read_text())
    for part in ("assertions", "validation"):
        raw.pop(part, None)
    if "schemaFile" in raw:
        raw["schema"] = (path.parent / raw.pop("schemaFile")).read_text()
    plain = folder / path.name
    plain.write_text(yaml.safe_dump(raw, width=100_000))
    return plain


# ---- the whole ------------------------------------------------------------------------------------------------------


def validation_files(checkout: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((checkout / folder).glob("*.yaml*")):
            if "schema" in path.read_text():
                yield path


def main(checkout: Path) -> int:
    from checks.asking import snapshot

    snapshot.FACTS_ALONE_TIME_LIMIT = math.inf  # a busy machine is no mistake of a policy's
    whole, refused, files = Outcome(), 0, 0
    with tempfile.TemporaryDirectory() as folder, in_memory():
        for path in validation_files(checkout):
            plain = Path(folder) / path.name.removesuffix(".skip")
            for each in (path, *path.parent.glob("*.zed")):
                (Path(folder) / each.name.removesuffix(".skip")).write_bytes(each.read_bytes())
            try:
                outcome = carried(plain, Path(folder))
            except (ImportRejected, CommandError) as reason:
                refused += 1
                print(f"{path.name}: refused, as it is there\n  {reason}".replace(f"{folder}/", ""))
                continue
            files += 1
            whole.add(outcome)
            print(shown(path.name, outcome).replace(f"{folder}/", ""))
    print(f"{files} files, and {refused} that are wrong\n{shown('all of them', whole)}")
    return 1 if whole.wrong else 0


def shown(name: str, outcome: Outcome) -> str:
    lines = [
        f"{name}: {outcome.right} right ({outcome.asserted} of them asserted there, {outcome.undecided} for caveats to "
        f"decide), {len(outcome.wrong)} wrong, {len(outcome.lacking)} denied for what was not imported",
        *(f"  {remark}" for remark in outcome.remarks),
        *(f"  WRONG {each}" for each in outcome.wrong),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
