"""Change the product's source in one place at a time, and see whether the tests of that part fail.

    python -m tests.code_mutants                              # the hand-picked changes and those derived by seed 1
    python -m tests.code_mutants --only facts/ --list         # what would be changed
    python -m tests.code_mutants --skip 40 --most 20 --results mutants.jsonl

Each change is made in a copy of the checkout, whose tests run until the first failure: those over SQLite first, then
those over PostgreSQL. Prints who found each change, and at the end those that nobody found. `run_mutations` of
`tests/properties` is another program: it changes policies.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from tests.code_mutants_list import AREAS, PICKED
from tests.service import ROOT

PROCESSOR = 240  # seconds of a test run: a change may make a loop endless
PATIENCE = 1_500  # seconds until a run that waits counts as failed
OTHER = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
SAYS_ONLY = {"info", "warning", "error", "debug", "exception", "note", "append", "add", "close", "print", "report"}


@dataclass(frozen=True)
class Mutant:
    """One change of a file: the text from `start` to `end`, in bytes, becomes `text`."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    text: str

    def __str__(self) -> str:
        was = " ".join((ROOT / self.path).read_bytes()[self.start : self.end].decode().split())
        return f"{self.path}:{self.line} {self.kind}: {was[:110]} → {' '.join(self.text.split())[:110]}"

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


# ---- which changes ----------------------------------------------------------------------------------------------


def mutants(seed: int) -> list[Mutant]:
    """The hand-picked changes; and of those that the syntax trees offer, as many of each module as its area says."""
    found, drawn = [picked(*each) for each in PICKED if is_there(*each)], []
    known = {(each.path, each.line) for each in found}
    for path, (number, _) in AREAS.items():
        offered = [each for each in derived(path) if (path, each.line) not in known]
        drawn += random.Random(f"{seed} {path}").sample(offered, min(number, len(offered)))
    random.Random(seed).shuffle(drawn)  # so that a part of them is of all areas
    return found + drawn


def is_there(path: str, old: str, new: str) -> bool:
    """Whether the source still has what was picked, in one place."""
    return (ROOT / path).is_file() and (ROOT / path).read_text().count(old) == 1


def picked(path: str, old: str, new: str) -> Mutant:
    source = (ROOT / path).read_bytes()
    start = source.index(old.encode())
    return Mutant(path, source[:start].count(b"\n") + 1, "picked", start, start + len(old.encode()), new)


def derived(path: str) -> list[Mutant]:
    """All changes that the syntax tree of a file offers, in order; none in messages, assertions and decorators."""
    source = (ROOT / path).read_bytes()
    lines = [0, *(place.end() for place in re.finditer(b"\n", source))]
    found = []
    for node, kind, text in _changes(ast.parse(source)):
        start = lines[node.lineno - 1] + node.col_offset
        end = lines[node.end_lineno - 1] + node.end_col_offset
        found.append(Mutant(path, node.lineno, kind, start, end, text))
    return found


def _changes(node: ast.AST) -> Iterator[tuple[ast.AST, str, str]]:
    match node:
        case ast.If(test=test, body=[*_, ast.Raise() | ast.Return() | ast.Continue()]):
            yield test, "never", "False"
        case ast.IfExp(test=test) | ast.comprehension(ifs=[test, *_]):
            yield test, "always", "True"
        case ast.Compare(ops=[op]) if type(op) in OTHER:
            other = deepcopy(node)
            other.ops = [OTHER[type(op)]()]
            yield node, "compare", f"({ast.unparse(other)})"
        case ast.BoolOp(values=values):
            for place in range(len(values)):
                rest = [ast.unparse(each) for index, each in enumerate(values) if index != place]
                word = " and " if isinstance(node.op, ast.And) else " or "
                yield node, "drop a term", f"({word.join(f'({each})' for each in rest)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, "drop not", f"({ast.unparse(operand)})"
        case ast.Expr(value=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name))) if name not in SAYS_ONLY:
            yield node, "drop a call", "pass"
        case ast.FunctionDef(returns=ast.Name(id="bool"), body=[*_, ast.Return() as last]) if not isinstance(
            last.value, ast.Constant
        ):
            yield last, "return early", "return True"
    if not isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.AnnAssign):
        for name, value in ast.iter_fields(node):
            if name not in ("decorator_list", "annotation", "returns", "orelse" if _is_typing(node) else ""):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST) and not _is_typing(child):
                        yield from _changes(child)


def _is_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


# ---- who finds them ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    mutant: str
    found_by: str  # empty: nobody
    seconds: float  # of processors


def tried(mutant: Mutant, copy: Path, is_wide: bool) -> Outcome:
    """Run the tests of the changed file's area in the copy, whose other files are as in the checkout."""
    path, before = copy / mutant.path, processor()
    tests = [([*paths(AREAS[mutant.path][1])], "not long and not alone")]
    tests += [([f"tests/{mutant.path.partition('/')[0]}", "tests/properties"], "not alone")] if is_wide else []
    source = path.read_bytes()
    path.write_bytes(mutant.applied(source))
    try:
        runs = (_failed(copy, *each, choice) for each in tests for choice in ("not postgresql", "postgresql"))
        found = next(filter(None, runs), "")
    finally:
        path.write_bytes(source)
    return Outcome(str(mutant), found, round(processor() - before, 1))


def paths(tests: str) -> Iterator[str]:
    """`facts: wire . error_shape` → tests/facts/test_wire.py and tests/test_error_shape.py"""
    folder = ""
    for word in tests.split():
        if word == "." or word.endswith(":"):
            folder = word.rstrip(":.")
        else:
            yield str(Path("tests", folder, f"test_{word}.py"))


def _failed(copy: Path, tests: list[str], marks: str, choice: str) -> str:
    """Return the first test that fails; empty if all pass."""
    options = ["-x", "-q", "-n0", "-p", "no:schemathesis", "-p", "no:cacheprovider", "--tb=no", "-m", marks]
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", *options, *tests, *(["-k", choice] if choice else [])]
    variables = os.environ | {"PYTHONPATH": str(copy), "HYPOTHESIS_STORAGE_DIRECTORY": str(copy / ".hypothesis")}
    limit = (resource.RLIMIT_CPU, (PROCESSOR, PROCESSOR + 5))
    with tempfile.TemporaryFile() as log:
        run = subprocess.Popen(
            command, cwd=copy, env=variables, stdout=log, stderr=log, start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(*limit),
        )  # fmt: skip
        try:
            status = run.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            status = "it does not end"
        with suppress(ProcessLookupError):
            os.killpg(run.pid, 9)  # and the servers that it started
        run.wait()
        log.seek(0)
        said = log.read().decode(errors="replace")
    if status in (0, 5):  # 5: no test was chosen
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE)
    return failed[1] if failed else f"{status}: {said.strip().splitlines()[-1:]}"


def processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def copied(folder: Path) -> Path:
    """Copy what the checkout tracks, with what is not committed yet, and return the folder."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="changes whose place and text contain this")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--most", type=int, default=None)
    parser.add_argument("--wide", action="store_true", help="then run all tests of the folder too, which takes minutes")
    parser.add_argument("--list", action="store_true", help="only print them")
    parser.add_argument("--results", type=Path, help="a file to which each outcome is appended as JSON")
    chosen = parser.parse_args()
    for gone in (each for each in PICKED if not is_there(*each)):
        print(f"{gone[0]} does not have this any more; change tests/code_mutants_list.py: {gone[1]}")
    some = [each for each in mutants(chosen.seed) if chosen.only in str(each)]
    some = list(islice(some, chosen.skip, None if chosen.most is None else chosen.skip + chosen.most))
    if chosen.list:
        print(*some, f"{len(some)} changes", sep="\n")
        return 0
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # PostgreSQL does not run as root
        copy = copied(Path(folder))
        for mutant in some:
            outcome = tried(mutant, copy, chosen.wide)
            print(f"{outcome.found_by or 'SURVIVED'} ({outcome.seconds} s) {outcome.mutant}", flush=True)
            if chosen.results:
                with chosen.results.open("a") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
            outcomes.append(outcome)
        finders = sorted({each.found_by for each in outcomes if "::" in each.found_by})
        if finders and (failed := _failed(copy, finders, "not alone", "")):
            print(f"{failed} fails without a change, too")
    survivors = [each.mutant for each in outcomes if not each.found_by]
    print(f"{len(outcomes) - len(survivors)} of {len(outcomes)} changes were found. Not found:", *survivors, sep="\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
