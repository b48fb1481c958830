"""What a pass found, in words."""

from __future__ import annotations

from collections.abc import Iterator

from facts.wire import Fact
from localsql.binding_keys import BindingKey
from localsql.sync.apply import whole
from localsql.sync.compare import Plan
from localsql.sync.errors import shown
from localsql.sync.rows import Ids
from localsql.sync.run import Passed
from localsql.sync.spill import Part
from policy.values import Value

MINUS = "\N{MINUS SIGN}"


def lines_of(plan: Plan) -> Iterator[str]:
    """Yield a line of how many facts come (`+`), go (minus) and stay (`=`), and examples of the first two."""
    yield f"{plan.pattern}  {counts(plan)}"
    yield from _examples(plan.pattern.key, "+", plan.added)
    yield from _examples(plan.pattern.key, MINUS, plan.deleted)
    if plan.read.nulls:
        yield f"  {_rows(plan.read.nulls)} with a NULL: no facts"
    if plan.read.bad_count and plan.read.skips_bad:
        yield f"  left out, {plan.read.sentence}"


def counts(plan: Plan) -> str:
    return f"+ {plan.added.count:,} {MINUS} {plan.deleted.count:,} = {plan.equal:,}"


def _examples(key: BindingKey, sign: str, part: Part) -> Iterator[str]:
    for ids in part.examples:
        yield f"  {sign} {shown(str(fact_of(key, ids)))}"
    if part.count > len(part.examples):
        yield f"  {sign} … and {part.count - len(part.examples):,} more"


def fact_of(key: BindingKey, ids: Ids) -> Fact:
    signature = key.signature
    return Fact(signature.predicate, tuple([Value(*each) for each in zip(signature.types, whole(key, ids))]))


def summary(found: Passed) -> str:
    added = sum(plan.added.count for plan in found.plans)
    deleted = sum(plan.deleted.count for plan in found.plans)
    equal = sum(plan.equal for plan in found.plans)
    if added or deleted:
        back = f", {found.taken_back:,} of them taken back, as their rows went meanwhile" if found.taken_back else ""
        made = f"; done{back}, in {found.revisions:,} revision{'' if found.revisions == 1 else 's'}"
        said = f"+ {added:,} {MINUS} {deleted:,} = {equal:,}{made if found.is_applied else '; --apply makes it so'}"
    else:
        said = f"in step: {equal:,} facts"
    return said if not found.failed else f"{said}; {len(found.failed)} of {_patterns(found)} failed"


def _patterns(found: Passed) -> str:
    number = len({str(each.pattern) for each in found.plans} | {str(each.pattern) for each in found.failed})
    return f"{number} pattern{'' if number == 1 else 's'}"


def _rows(number: int) -> str:
    return f"{number:,} row{'' if number == 1 else 's'}"
