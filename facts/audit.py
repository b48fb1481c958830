"""Stored facts that a policy has no use for: kept, ignored, and shown to whoever asks."""

from dataclasses import dataclass

from django.db import connection

from facts.signatures import signature_numbers
from policy.publishing import Ignored
from policy.rules.program import Program, Signature

COUNTED = 10_000  # facts; what is more than that is told as such


@dataclass(frozen=True, slots=True)
class Unused:
    """A signature that the policy does not accept, and how many facts are filed under it."""

    signature: Signature
    facts: Ignored


def ignored_facts(environment_id: int, program: Program) -> Ignored:
    """How many stored facts the program does not accept.

    Facts are filed by signature, so it is signatures that are looked through, and their index entries that are
    counted, no further than is worth telling: the time does not depend on how many facts there are.
    """
    count = 0
    for number in _unaccepted(environment_id, program).values():
        count += _counted(number, COUNTED + 1 - count)
        if count > COUNTED:
            return Ignored(COUNTED, or_more=True)
    return Ignored(count)


def unused_signatures(environment_id: int, program: Program) -> list[Unused]:
    """The signatures with facts that the program does not accept, each with its own count."""
    found = []
    for signature, number in sorted(_unaccepted(environment_id, program).items(), key=lambda item: str(item[0])):
        count = _counted(number, COUNTED + 1)
        if count:
            found.append(Unused(signature, Ignored(min(count, COUNTED), count > COUNTED)))
    return found


def _unaccepted(environment_id: int, program: Program) -> dict[Signature, int]:
    numbers = signature_numbers(environment_id).items()
    return {one: number for one, number in numbers if not program.accepts(one.predicate, one.types)}


def _counted(number: int, most: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM (SELECT 1 FROM fact WHERE sig = %s LIMIT %s) counted", (number, most))
        return cursor.fetchone()[0]
