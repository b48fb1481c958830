"""Large imports: many facts in one transaction, and every line that is wrong told."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from django.db import transaction

from facts.accept import check_signature
from facts.lines import BadLine
from facts.rows import Row, row_of_fact, rows_here
from facts.signatures import signature_number
from facts.wire import Fact
from policy.active import program_of_version
from policy.errors import AuthzError
from policy.offsets import advance
from policy.rules.program import Program, Signature

CHUNK = 20_000  # facts
ENOUGH = 100  # wrong lines, after which reading on helps nobody


@dataclass(frozen=True, slots=True)
class Loaded:
    read: int
    inserted: int
    bad: tuple[BadLine, ...]


class LinesRejected(AuthzError):
    """Some lines are wrong, and so nothing is loaded."""

    def __init__(self, bad: tuple[BadLine, ...]):
        self.bad = bad
        super().__init__("\n".join(map(str, bad)))


def load(
    environment_id: int,
    lines: Iterable[tuple[int, Fact | BadLine]],
    skip_bad: bool = False,
    report: Callable[[int], None] = lambda read: None,
) -> Loaded:
    """Store the facts of all lines, or of none; with `skip_bad`, of those that are right."""
    with transaction.atomic(savepoint=False):
        rows_here().lift_time_limit()
        program = program_of_version(advance(environment_id).policy_version_id)
        filing = _Filing(environment_id, program, skip_bad)
        inserted = read = 0
        lines = iter(lines)
        while chunk := list(islice(lines, CHUNK)):
            rows = [row for number, line in chunk if (row := filing.row(number, line)) is not None]
            if rows and (skip_bad or not filing.bad):
                inserted += rows_here().load(rows)
            read += len(chunk)
            report(read)
        if filing.bad and not skip_bad:
            raise LinesRejected(tuple(filing.bad))
    return Loaded(read, inserted, tuple(filing.bad))


class _Filing:
    """Turns lines into rows, and keeps the wrong ones."""

    def __init__(self, environment_id: int, program: Program | None, skip_bad: bool):
        self.environment_id = environment_id
        self.program = program
        self.skip_bad = skip_bad
        self.bad: list[BadLine] = []
        self.numbers: dict[Signature, int | str] = {}  # or why the policy has no use for such facts

    def row(self, number: int, line: Fact | BadLine) -> Row | None:
        if isinstance(line, BadLine):
            return self._refuse(line)
        signature = line.signature
        filed = self.numbers.get(signature)
        if filed is None:
            filed = self.numbers[signature] = self._file(signature)
        return self._refuse(BadLine(number, filed)) if isinstance(filed, str) else row_of_fact(filed, line)

    def _file(self, signature: Signature) -> int | str:
        try:
            if self.program is not None:
                check_signature(self.program, signature, "")
        except AuthzError as error:
            return error.message
        return signature_number(self.environment_id, signature)

    def _refuse(self, line: BadLine) -> None:
        self.bad.append(line)
        if len(self.bad) >= ENOUGH and not self.skip_bad:
            raise LinesRejected(tuple(self.bad))
