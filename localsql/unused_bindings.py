"""Entries of data bindings that a policy has no use for: questions ignore them, and they are logged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice

from facts.accept import MOST_NAMED, unaccepted_of
from facts.context_header import printable
from localsql.bindings import Bindings
from policy.active import program_of_version
from policy.rules.program import Program

log = logging.getLogger("authz.bindings")


def unused_entries(program: Program, bindings: Bindings) -> Iterator[str]:
    """Yield a sentence for each fact that the policy does not ask for, and each domain of a type it does not know."""
    for binding in bindings.facts:
        signature = binding.signature
        if not program.accepts(signature.predicate, signature.types):
            yield f"`{binding.key}` is not used in policy{unaccepted_of(program, signature).advice}"
    for name in bindings.domains:
        if not program.knows(name):
            near = get_close_matches(name, sorted(program.types), 1)
            hint = f" (did you mean `{near[0]}`?)" if near else ""
            yield f"`domains.{name}` is not used in policy, which has no such type{hint}"


@lru_cache(maxsize=1024)
def log_once(version: int, bindings: Bindings) -> None:
    """Log the unused entries; as a warning if a name is probably misspelt, since facts are missing then."""
    for entry in islice(unused_entries(program_of_version(version), bindings), MOST_NAMED):
        log.log(logging.WARNING if "did you mean" in entry else logging.INFO, "data bindings: %s", printable(entry))
