"""Plans of random questions do as if half of all arguments led to few facts: answers depend on no count."""

import zlib

import pytest

from facts.numbering import Numbering
from policy.rules.program import Signature


def by_chance(_: Numbering, signature: Signature, index: int) -> bool:
    return bool(zlib.crc32(f"{signature}.{index}".encode()) & 1)


@pytest.fixture(autouse=True)
def some_arguments_lead_to_few_facts(monkeypatch):
    monkeypatch.setattr(Numbering, "is_narrow", by_chance)
