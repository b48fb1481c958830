"""A new key, printed once."""

from argparse import ArgumentTypeError
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from authz_project.environments import NotAName, environment_made
from authz_project.keys import create_key
from authz_project.models import ApiKey
from policy.management.command import ServiceCommand, above_zero
from policy.models import DEFAULT_SLUG, Environment

MOST_DAYS = 36_500
MOST_LABEL = ApiKey._meta.get_field("label").max_length or 0


class Command(ServiceCommand):
    help = "Make an API key and print it; it cannot be shown again."

    def add_arguments(self, parser):
        parser.add_argument("--environment", default=DEFAULT_SLUG, help="its short name (default: %(default)s)")
        parser.add_argument("--create-environment", action="store_true", help="make the environment if it is missing")
        parser.add_argument("--label", type=label, default="", help="what the key is for")
        parser.add_argument("--days", type=days, help="how long the key lasts (default: for ever)")

    def handle(
        self, *, environment: str, create_environment: bool, label: str, days: float | None, **options: Any
    ) -> None:
        expires_at = None if days is None else timezone.now() + timedelta(days=days)
        found = environment_named(environment, create_environment)
        self.stdout.write(create_key(found, label, expires_at)[1])


def label(text: str) -> str:
    if len(text) > MOST_LABEL:
        raise ArgumentTypeError(f"it has {len(text):,} characters; a label has at most {MOST_LABEL}")
    return text


def days(text: str) -> float:
    return above_zero(text, MOST_DAYS)


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
