"""An example put into an environment that has nothing yet."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from authz_project.examples.example import Example
from facts import loading, notation, read
from facts.numbering import signature_numbers
from policy.errors import AuthzError
from policy.ground.journal import By, changing
from policy.models import Environment
from policy.publishing import active_version, publish


@dataclass(frozen=True, slots=True)
class Loaded:
    """What is there now. `is_unchanged` where it was all there before."""

    policy_version: int
    facts: int
    is_unchanged: bool = False


class NotEmpty(AuthzError):
    """The environment has something of its own, which an example would get in the way of."""


def load(environment_id: int, example: Example, by: By) -> Loaded:
    """Give the environment the example's policy and facts; `NotEmpty` if it has others.

    An environment that has exactly these stays as it is. The policy is stored first: if storing the facts then
    fails, the same call can be repeated.
    """
    number = _number_of_policy(environment_id, example)
    if number is not None and _has_facts(environment_id):
        _check_facts(environment_id, example)
        return Loaded(number, len(example.stored_facts), is_unchanged=True)
    within = partial(_changing_what_is_empty, environment_id, example)
    version = publish(environment_id, example.policy, example.filename, within=within, by=by).version
    lines = notation.read_csv(io.BytesIO(example.facts.encode()))
    stored = loading.load(environment_id, lines, by=by)
    return Loaded(version.number, stored.read)


@contextmanager
def _changing_what_is_empty(environment_id: int, example: Example) -> Iterator[None]:
    with changing():
        Environment.objects.select_for_update().filter(pk=environment_id).first()  # nobody else publishes meanwhile
        _number_of_policy(environment_id, example)
        yield


def _number_of_policy(environment_id: int, example: Example) -> int | None:
    """Return the number of the active version if it is the example's; None if there is neither a policy nor a fact."""
    active = active_version(environment_id)
    if active is not None and active.source == example.policy:
        return active.number
    if active is not None:
        raise NotEmpty(_refusal(environment_id, f"a policy, version {active.number}"))
    if _has_facts(environment_id):
        raise NotEmpty(_refusal(environment_id, "facts"))
    return None


def _check_facts(environment_id: int, example: Example) -> None:
    if set(read.every(environment_id)) != set(example.stored_facts):
        raise NotEmpty(_refusal(environment_id, "this example's policy, and other facts than its own"))


def _has_facts(environment_id: int) -> bool:
    return bool(read.count_up_to(1, signature_numbers(environment_id).values()))


def _refusal(environment_id: int, what: str) -> str:
    slug = Environment.objects.values_list("slug", flat=True).get(pk=environment_id)
    return (
        f"environment `{slug}` has {what}; load an example into an empty one:"
        " `load_example NAME --environment SLUG` makes the environment"
    )
