"""What a request asks: one evaluation; or many, some of which may be invalid; or a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from checks.authzen.entities import ANY_ACTION, Parts
from checks.authzen.properties import RequestProperties
from policy.errors import MalformedRequest
from policy.serializers import decoded

INHERITED = ("subject", "action", "resource", "context")
Evaluated = RequestProperties | MalformedRequest  # a valid evaluation, or what is wrong with it


def known_of(body: Mapping) -> RequestProperties:
    """Return the parts of a decoded body. A body without an action searches for actions, and asks about any."""
    return RequestProperties(body["subject"], body.get("action", ANY_ACTION), body["resource"], body["around"])


def evaluated(defaults: Mapping[str, object], raw: Sequence[object]) -> list[Evaluated]:
    """Read many evaluations. A member that is missing or null in one is taken from the defaults, as a whole."""
    return [_evaluated(defaults, each, f"evaluations[{index}]") for index, each in enumerate(raw)]


def _evaluated(defaults: Mapping[str, object], raw: object, path: str) -> Evaluated:
    if not isinstance(raw, dict):
        return MalformedRequest(path, "must be an object")
    try:
        given = {name: raw.get(name) for name in INHERITED}
        whole = {name: defaults.get(name) if part is None else part for name, part in given.items()}
        return known_of(decoded(Parts, whole))
    except MalformedRequest as fault:
        return MalformedRequest(f"{path}.{fault.path}", fault.reason)
