"""Many facts, grouped by signature to be checked and stored: what depends on the signature alone is done once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AnySet
from dataclasses import dataclass, field
from typing import Any, TypeVar

from facts.models import MAX_ARGUMENTS, ROW_LENGTH, NewRow, Row
from facts.wire import Fact, end_path, fact_from_json, list_from_json, plain_fact
from policy.errors import MalformedRequest
from policy.rules.program import Signature
from policy.values import BOOLEAN, INTEGER

FactIds = tuple[str, ...]
FactKey = tuple[str, tuple[str, ...]]  # a signature's parts: what is quickly hashed
T = TypeVar("T")


@dataclass(eq=False, slots=True)
class FactBatch(Sequence[Fact]):
    """Facts from JSON. A `Fact` is created only when it is accessed, which most of them never are.

    What did not come as JSON has `ids` alone: it can be checked and stored, but it has no length and no places.
    """

    raw: list[object] = field(default_factory=list)
    ids: dict[Signature, list[FactIds]] = field(default_factory=dict)  # by the order of their first facts
    some_end: bool = False

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [fact_from_json(each, "") for each in self.raw[index]]
        return fact_from_json(self.raw[index], "")

    def __iter__(self) -> Iterator[Fact]:
        return (fact_from_json(each, "") for each in self.raw)


def batch_from_json(raw: object, path: str) -> FactBatch:
    batch = FactBatch(list_from_json(raw, path))
    known: dict[FactKey, list[FactIds]] = {}
    for index, item in enumerate(batch.raw):
        plain = plain_fact(item, known)
        if plain is None:
            _add(batch, fact_from_json(item, f"{path}[{index}]"), known)
        else:
            plain[0].append(plain[1])
    return batch


def lasting_from_json(raw: object, path: str) -> FactBatch:
    """Decode context facts, which count for one question only; refuse a fact that has an end."""
    batch = batch_from_json(raw, path)
    if batch.some_end:
        place = next(index for index, fact in enumerate(batch) if fact.expires_at is not None)
        raise MalformedRequest(
            end_path(f"{path}[{place}]"), "is only allowed for stored facts; remove it from the context fact"
        )
    return batch


def _add(batch: FactBatch, fact: Fact, known: dict[FactKey, list[FactIds]]) -> None:
    signature = fact.signature
    same = batch.ids.setdefault(signature, [])
    same.append(tuple([value.id for value in fact.args]))
    batch.some_end |= fact.expires_at is not None
    remember(known, signature, same)


def remember(known: dict[FactKey, T], signature: Signature, what: T) -> None:
    """Let `plain_fact` know the signature. Left out are Integers and Booleans: their ids may need another spelling."""
    if INTEGER not in signature.types and BOOLEAN not in signature.types:
        known[signature.predicate, signature.types] = what


def by_signature(facts: Iterable[Fact]) -> Mapping[Signature, Sequence[FactIds]]:
    """Return the facts' ids by signature, in the order in which the signatures first appear."""
    if isinstance(facts, FactBatch):
        return facts.ids
    found: dict[Signature, list[FactIds]] = {}
    for fact in facts:
        found.setdefault(fact.signature, []).append(tuple([value.id for value in fact.args]))
    return found


def without(facts: Sequence[Fact], signatures: AnySet[Signature]) -> Sequence[Fact]:
    """Return the facts of all other signatures."""
    if not isinstance(facts, FactBatch):
        return tuple([fact for fact in facts if fact.signature not in signatures])
    kept = {signature: ids for signature, ids in facts.ids.items() if signature not in signatures}
    return FactBatch([item for item in facts.raw if _signature_of(item) in kept], kept)


def _signature_of(item: Any) -> Signature:
    """Return the signature of JSON that is known to be a valid fact."""
    return Signature(item["predicate"], tuple([arg["type"] for arg in item["args"]]))


def place_of_first(facts: Iterable[Fact], signature: Signature) -> int:
    return next(index for index, fact in enumerate(facts) if fact.signature == signature)


def some_end(facts: Iterable[Fact]) -> bool:
    """Say whether any of the facts says until when."""
    if isinstance(facts, FactBatch):
        return facts.some_end
    return any(fact.expires_at is not None for fact in facts)


def rows_of(facts: Iterable[Fact], number_of: Callable[[Signature], int], since: int) -> list[NewRow]:
    """Return the facts' rows without duplicates; of facts that differ only in their end, the last one counts."""
    if some_end(facts):
        return last_of_each([row_of(fact, number_of(fact.signature), since) for fact in facts])
    rows: list[NewRow] = []
    for signature, ids in by_signature(facts).items():
        number, rest = number_of(signature), rest_of_row(signature, since)
        rows += [(number, *(each + rest)) for each in ids]
    return list(dict.fromkeys(rows))


def row_of(fact: Fact, number: int, since: int) -> NewRow:
    *padding, _ = rest_of_row(fact.signature, since)
    return (number, *[value.id for value in fact.args], *padding, fact.expires_at)


def last_of_each(rows: Iterable[NewRow]) -> list[NewRow]:
    """Return one row of each fact: the last one, whose end counts."""
    found: dict[Row, NewRow] = {row[:ROW_LENGTH]: row for row in rows}
    return list(found.values())


def rest_of_row(signature: Signature, since: int) -> tuple[Any, ...]:
    """Return what follows the ids in a row of a fact that has no end."""
    return (*("",) * (MAX_ARGUMENTS - len(signature.types)), since, None)
