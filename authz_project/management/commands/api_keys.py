"""Create, list, rotate and revoke API keys."""

import re
from argparse import ArgumentTypeError
from datetime import timedelta
from typing import Any

from authz_project import keys
from authz_project.environments import environment_made
from authz_project.models import ApiKey
from policy.active import Scope
from policy.core.clock import now, time_of
from policy.core.journal import by_command
from policy.core.spaces import enter, everywhere
from policy.management.command import ServiceCommand, environment_named
from policy.models import DEFAULT_SLUG

MOST_LABEL = ApiKey._meta.get_field("label").max_length or 0

ACTIONS = {
    "create": "Create a key and print it. It cannot be shown again.",
    "list": "List all keys, without their secrets.",
    "rotate": "Create a key's successor and print it. The old key expires after the overlap.",
    "revoke": "Revoke a key. Requests with it are rejected at once.",
}


class Command(ServiceCommand):
    help = "Create, list, rotate and revoke API keys."

    def add_arguments(self, parser):
        create, _, rotate, revoke = self.subcommands(parser, "action", ACTIONS).values()
        create.add_argument("name", nargs="?", default="", type=label, metavar="NAME", help="Label of the key.")
        create.add_argument(
            "--environment", default=DEFAULT_SLUG, help="Environment that the key opens (default: %(default)s)."
        )
        create.add_argument(
            "--create-environment", action="store_true", help="Create the environment if it does not exist."
        )
        create.add_argument(
            "--scope", action="append", choices=[scope.value for scope in Scope], default=[],
            help="Allow only this: read (checks and lists), facts or policy (changes), or follow (copies, for "
            "`serve --follow`). Repeatable (default: all).",
        )  # fmt: skip
        create.add_argument(
            "--expires", type=above_nothing, metavar="SPAN", help="Lifetime, e.g. 90d or 12h (default: unlimited)."
        )
        rotate.add_argument(
            "--overlap", type=duration, default=keys.OVERLAP, metavar="SPAN",
            help="How long the old key stays valid, e.g. 24h or 0 (default: 24h).",
        )  # fmt: skip
        rotate.add_argument(
            "--expires", type=above_nothing, metavar="SPAN",
            help="Lifetime of the new key, e.g. 90d (default: the lifetime that the old key was created with).",
        )  # fmt: skip
        for with_key in (rotate, revoke):
            with_key.add_argument(
                "key", metavar="KEY", help="Label of the key, or the key without its secret (see `api_keys list`)."
            )

    def handle(self, *, action: str, **options: Any) -> None:
        getattr(self, f"_{action}")(**options)

    def _create(
        self, *, name: str, environment: str, create_environment: bool, scope: list[str], expires: timedelta | None,
        **options: Any,
    ) -> None:  # fmt: skip
        expires_at = None if expires is None else time_of(now()) + expires
        scopes = frozenset(map(Scope, scope)) or keys.ALL
        found = (environment_made if create_environment else environment_named)(environment)
        self.stdout.write(keys.create_key(found, name, expires_at, scopes, by_command("api_keys"))[1])

    def _list(self, **options: Any) -> None:
        moment = time_of(now())
        for key in (key for _ in everywhere() for key in ApiKey.objects.order_by("environment__slug", "pk")):
            created = f"created {key.created_at:%Y-%m-%d}{f' by {key.created_by}' if key.created_by else ''}"
            parts = [
                key.prefix,
                keys.state_of(key, moment),
                keys.scopes_text(key),
                keys.used_text(key),
                created,
                key.label,
            ]
            self.stdout.write("  ".join(filter(None, parts)))

    def _rotate(self, *, key: str, overlap: timedelta, expires: timedelta | None, **options: Any) -> None:
        expires_at = None if expires is None else time_of(now()) + expires
        rotated = keys.rotate_key(_key_named(key), by_command("api_keys"), overlap, expires_at)
        self.stdout.write(rotated.token)
        self.stderr.write(f"{rotated.outcome}; {rotated.new.prefix} replaces it")

    def _revoke(self, *, key: str, **options: Any) -> None:
        found = _key_named(key)
        keys.revoke_key(found)
        self.stdout.write(f"{found.prefix} is revoked")
        for each in keys.good_predecessors(found):
            until = f" until {each.expires_at:%Y-%m-%dT%H:%MZ}" if each.expires_at else ""
            self.stderr.write(
                f"warning: {each.prefix}, which it replaced, is still valid{until}. "
                "Revoke that key too if it must stop working now."
            )


def _key_named(text: str) -> ApiKey:
    """Find the key with this prefix, number or label in all spaces, and work in its space from now on."""
    spaces = list(everywhere())
    for space in spaces:
        enter(space)
        for key in keys.keys_exactly(text):
            return key
    places: dict[ApiKey, str] = {}
    for space in spaces:
        enter(space)
        places |= dict.fromkeys(keys.keys_labelled(text), space)
    key = keys.only_one(places)
    enter(places[key])
    return key


def label(text: str) -> str:
    if len(text) > MOST_LABEL:
        raise ArgumentTypeError(f"the label has {len(text):,} characters; at most {MOST_LABEL} are allowed")
    return text


# ---- time spans ---------------------------------------------------------------------------------------------------

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
LONGEST = timedelta(days=36_500)


def duration(text: str) -> timedelta:
    """Parse a time span such as 90d, 24h, 30m or 0."""
    if text == "0":
        return timedelta()
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text, re.ASCII)
    span = timedelta(**{UNITS[found[2]]: int(found[1])}) if found else None
    if span is None or span > LONGEST:
        raise ArgumentTypeError(f"`{text}` is not a time span such as 90d, 24h or 30m, up to {LONGEST.days:,}d")
    return span


def above_nothing(text: str) -> timedelta:
    """Parse a time span longer than 0."""
    span = duration(text)
    if not span:
        raise ArgumentTypeError(f"`{text}` is not a time span longer than 0")
    return span
