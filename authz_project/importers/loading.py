"""An import put into an environment that has no facts: policy and facts become so together, or neither does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from facts import bulk, read
from facts.numbering import signature_numbers
from facts.wire import Fact
from policy.active import forget_program
from policy.errors import AuthzError
from policy.models import Environment
from policy.offsets import changing
from policy.publishing import Published, publish
from policy.revisions import By


class HasFacts(AuthzError):
    """Facts of an earlier model may grant what the imported one denies."""


@dataclass(frozen=True, slots=True)
class Import:
    environment: Environment
    policy: str
    filename: str
    facts: Sequence[Fact]
    by: By
    note: str


@dataclass(slots=True)
class _Stored:
    loaded: list[bulk.Loaded] = field(default_factory=list)


def load(what: Import) -> tuple[Published, bulk.Loaded]:
    """Publish the policy and store the facts in one transaction; `HasFacts` if there are any already."""
    stored = _Stored()
    within = partial(_with_facts, what, stored)
    published = publish(what.environment.pk, what.policy, what.filename, within=within, by=what.by, note=what.note)
    if not stored.loaded:  # the policy was active already
        with within():
            pass
    return published, stored.loaded[0]


@contextmanager
def _with_facts(what: Import, stored: _Stored) -> Iterator[None]:
    """Open a transaction that ends with storing the facts, since the new policy says which of them are of use."""
    number = None
    try:
        with changing():
            mine = Environment.objects.filter(pk=what.environment.pk)
            mine.select_for_update().first()  # nobody else stores meanwhile
            _check_empty(what.environment)
            yield
            number = mine.values_list("policy_version_id", flat=True).get()
            stored.loaded.append(bulk.load(what.environment.pk, enumerate(what.facts, 1), by=what.by))
    except BaseException:
        if number is not None:
            forget_program(number)  # its number may be another version's one day
        raise


def _check_empty(environment: Environment) -> None:
    if read.count_up_to(1, signature_numbers(environment.pk).values()):
        raise HasFacts(
            f"environment `{environment.slug}` has facts already, which may grant what the imported policy denies;"
            " nothing is loaded. Load into another one (`--load --environment NAME` makes it), or write files with"
            " --policy and --facts, and use load_policy and load_facts once the facts that are there are looked through"
        )
