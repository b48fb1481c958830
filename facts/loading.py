"""Large imports: many facts in one transaction, and every line that is wrong told."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from facts.accept import check_signature
from facts.bundles import Ids, Key, Row, padding, remember
from facts.lines import BadLine
from facts.rows import rows_here
from facts.signatures import signature_number
from facts.wire import Fact, fact_from_json, plain_fact
from policy.active import program_of_version
from policy.errors import AuthzError
from policy.offsets import advance, changing
from policy.rules.program import Program, Signature

CHUNK = 10_000  # facts
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
    with changing():
        program = program_of_version(advance(environment_id).policy_version_id)
        rows_here().expect_many()
        with rows_here().loader() as loader:
            filing = _Filing(environment_id, program, skip_bad, loader.settle)
            lines = iter(lines)
            while rows := filing.rows(islice(lines, CHUNK)):
                right = list(filter(None, rows))
                if right and (skip_bad or not filing.bad):
                    loader.take(right)
                report(filing.read)
        if filing.bad and not skip_bad:
            raise LinesRejected(tuple(filing.bad))
        rows_here().note_stored(loader.inserted)
    return Loaded(filing.read, loader.inserted, tuple(filing.bad))


class _Filing:
    """Turns lines into rows, and keeps the wrong ones. `settle` is called before the database is."""

    def __init__(self, environment_id: int, program: Program | None, skip_bad: bool, settle: Callable[[], None]):
        self.environment_id = environment_id
        self.program = program
        self.skip_bad = skip_bad
        self.settle = settle
        self.read = 0
        self.bad: list[BadLine] = []
        self.filed: dict[Signature, Filed | str] = {}  # or why the policy has no use for such facts
        self.known: dict[Key, Filed] = {}

    def rows(self, lines: Iterable[tuple[int, object]]) -> list[Row | None]:
        """Each line's, or None where it is wrong. What JSON said of a line is gone before the next one is read."""
        rows: list[Row | None] = []
        for number, line in lines:
            plain = plain_fact(line, self.known)
            if plain is None:
                rows.append(self._with_care(number, line))
            else:
                (sig, rest), ids = plain
                rows.append((sig, *(ids + rest)))
        self.read += len(rows)
        return rows

    def _with_care(self, number: int, line: object) -> Row | None:
        try:
            if isinstance(line, BadLine):
                self._refuse(line)
                return None
            fact = line if isinstance(line, Fact) else fact_from_json(line, "")
            filed = self.filed.get(fact.signature) or self._file(fact.signature)
        except AuthzError as error:
            self._refuse(BadLine(number, error.message))
            return None
        if isinstance(filed, str):
            self._refuse(BadLine(number, filed))
            return None
        number_of_kind, rest = filed
        return (number_of_kind, *[value.id for value in fact.args] + list(rest))

    def _file(self, signature: Signature) -> Filed | str:
        try:
            if self.program is not None:
                check_signature(self.program, signature)
        except AuthzError as error:
            self.filed[signature] = error.message
        else:
            self.settle()
            filed = self.filed[signature] = signature_number(self.environment_id, signature), padding(signature)
            remember(self.known, signature, filed)
        return self.filed[signature]

    def _refuse(self, line: BadLine) -> None:
        self.bad.append(line)
        if len(self.bad) >= ENOUGH and not self.skip_bad:
            raise LinesRejected(tuple(self.bad))
