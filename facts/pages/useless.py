"""Stored facts that the active policy has no use for, with a link to the facts of each kind."""

from __future__ import annotations

from dataclasses import dataclass

from facts.accept import UnusedStored, unaccepted_of, unused_signatures
from facts.names import MOST_TOLD, stored_names
from facts.pages.addresses import browse_url
from policy.models import Environment
from policy.rules.program import Program
from policy.rules.signatures import PLACE


@dataclass(frozen=True)
class Useless:
    """A sentence about facts without use, and the address of the page that lists them."""

    sentence: str
    url: str


def useless(environment: Environment, program: Program) -> list[Useless]:
    """Return the kinds that the policy does not accept, then the roles and relations that it does not know."""
    found = [
        Useless(_warning(program, unused), browse_url(environment.pk, predicate=unused.signature.predicate))
        for unused in unused_signatures(environment.pk, program)[:MOST_TOLD]
    ]
    for name in stored_names(environment.pk, program)[:MOST_TOLD]:
        kind = name.signature
        url = browse_url(environment.pk, predicate=kind.predicate, type=kind.types[PLACE], id=name.name)
        found.append(Useless(str(name), url))
    return found


def _warning(program: Program, unused: UnusedStored) -> str:
    count = "1 fact" if str(unused.facts) == "1" else f"{unused.facts} facts"
    return f"{count}: {unaccepted_of(program, unused.signature)}"
