"""Large imports: many facts in one transaction, and every line that is wrong told."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from django.db import transaction

from facts.accept import check_signature
from facts.bundles import Ids, Key, Row, padding, remember
from facts.lines import BadLine
from facts.rows import rows_here
from facts.signatures import signature_number
from facts.wire import Fact, fact_from_json, plain_fact
from policy.active import program_of_version
from policy.errors import AuthzError
from policy.offsets import advance
from policy.rules.program import Program, Signature

CHUNK = 20_000  # facts
ENOUGH = 100  # wrong lines, after which reading on helps nobody
Filed = tuple[int, Ids]  # a signature's number, and what follows the ids in a row


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
    lines: Iterable[tuple[int, object]],
    skip_bad: bool = False,
    report: Callable[[int], None] = lambda read: None,
) -> Loaded:
    """Store the facts of all lines, or of none; with `skip_bad`, of those that are right.

    A line is a `Fact`, or what JSON says of one, or known to be bad.
    """
    with transaction.atomic(savepoint=False):
        rows_here().expect_many()
        program = program_of_version(advance(environment_id).policy_version_id)
        filing = _Filing(environment_id, program, skip_bad)
        inserted = read = 0
        lines = iter(lines)
        while chunk := list(islice(lines, CHUNK)):
            rows = [row for number, line in chunk if (row := filing.row(number, line))]
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
        self.filed: dict[Signature, Filed | str] = {}  # or why the policy has no use for such facts
        self.known: dict[Key, Filed] = {}

    def row(self, number: int, line: object) -> Row | None:
        plain = plain_fact(line, self.known)
        if plain is None:
            return self._with_care(number, line)
        (sig, rest), ids = plain
        return (sig, *ids, *rest)

    def _with_care(self, number: int, line: object) -> Row | None:
        try:
            if isinstance(line, BadLine):
                return self._refuse(line)
            fact = line if isinstance(line, Fact) else fact_from_json(line, "")
            filed = self.filed.get(fact.signature) or self._file(fact.signature)
        except AuthzError as error:
            return self._refuse(BadLine(number, error.message))
        if isinstance(filed, str):
            return self._refuse(BadLine(number, filed))
        return (filed[0], *[value.id for value in fact.args], *filed[1])

    def _file(self, signature: Signature) -> Filed | str:
        try:
            if self.program is not None:
                check_signature(self.program, signature, "")
        except AuthzError as error:
            self.filed[signature] = error.message
        else:
            filed = self.filed[signature] = signature_number(self.environment_id, signature), padding(signature)
            remember(self.known, signature, filed)
        return self.filed[signature]

    def _refuse(self, line: BadLine) -> None:
        self.bad.append(line)
        if len(self.bad) >= ENOUGH and not self.skip_bad:
            raise LinesRejected(tuple(self.bad))
