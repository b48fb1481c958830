"""A new key, printed once."""

from argparse import ArgumentTypeError
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError

from authz_project.environments import NotAName, environment_made
from authz_project.keys import ALL, create_key
from authz_project.management.durations import above_nothing
from authz_project.models import ApiKey
from policy.ground.clock import now, time_of
from policy.ground.journal import by_command
from policy.management.command import ServiceCommand, above_zero
from policy.models import DEFAULT_SLUG, Environment
from policy.scopes import Scope

MOST_DAYS = 36_500
MOST_LABEL = ApiKey._meta.get_field("label").max_length or 0


class Command(ServiceCommand):
    help = "Make an API key and print it; it cannot be shown again."

    def add_arguments(self, parser):
        parser.add_argument("--environment", default=DEFAULT_SLUG, help="its short name (default: %(default)s)")
        parser.add_argument("--create-environment", action="store_true", help="make the environment if it is missing")
        parser.add_argument("--label", type=label, default="", help="what the key is for")
        parser.add_argument(
            "--scope", action="append", choices=[scope.value for scope in Scope], default=[],
            help="what the key is good for: read (questions), facts or policy (changes); may be given more than once "
            "(default: all)",
        )  # fmt: skip
        lasting = parser.add_mutually_exclusive_group()
        lasting.add_argument(
            "--expires", type=above_nothing, metavar="SPAN", help="when the key ends, as 90d or 12h (default: never)"
        )
        lasting.add_argument("--days", type=days, help="the same in days")

    def handle(
        self,
        *,
        environment: str,
        create_environment: bool,
        label: str,
        scope: list[str],
        expires: timedelta | None,
        days: timedelta | None,
        **options: Any,
    ) -> None:
        span = expires or days
        expires_at = None if span is None else time_of(now()) + span
        scopes = frozenset(map(Scope, scope)) or ALL
        found = environment_named(environment, create_environment)
        self.stdout.write(create_key(found, label, expires_at, scopes, by_command("create_api_key"))[1])


def label(text: str) -> str:
    if len(text) > MOST_LABEL:
        raise ArgumentTypeError(f"it has {len(text):,} characters; a label has at most {MOST_LABEL}")
    return text


def days(text: str) -> timedelta:
    return timedelta(days=above_zero(text, MOST_DAYS))


def environment_named(slug: str, create: bool) -> Environment:
    if create or slug == DEFAULT_SLUG:
        try:
            return environment_made(slug)
        except NotAName as reason:
            raise CommandError(reason.message) from None
    found = Environment.objects.filter(slug=slug).first()
    if found is None:
        raise CommandError(f"there is no environment `{slug}`; --create-environment makes it")
    return found
