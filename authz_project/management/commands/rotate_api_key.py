"""A key's successor, printed once."""

from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError

from authz_project.keys import OVERLAP, key_named, rotate_key
from authz_project.management.durations import above_nothing, duration
from policy.errors import AuthzError, Unavailable
from policy.ground.clock import now, time_of
from policy.ground.journal import by_command
from policy.management.command import ServiceCommand


class Command(ServiceCommand):
    help = (
        "Make a successor of an API key, for the same environment and scopes, and print it; it cannot be shown again. "
        "The old key ends after the overlap."
    )

    def add_arguments(self, parser):
        parser.add_argument("key", help="its label, or the key without its secret, as list_api_keys shows it")
        parser.add_argument(
            "--overlap", type=duration, default=OVERLAP, metavar="SPAN",
            help="how long the old key is good still, as 24h or 0 (default: 24h)",
        )  # fmt: skip
        parser.add_argument(
            "--expires", type=above_nothing, metavar="SPAN",
            help="when the new key ends, as 90d (default: it lasts as long as the old one was made for)",
        )  # fmt: skip

    def handle(self, *, key: str, overlap: timedelta, expires: timedelta | None, **options: Any) -> None:
        try:
            expires_at = None if expires is None else time_of(now()) + expires
            rotated = rotate_key(key_named(key), by_command("rotate_api_key"), overlap, expires_at)
        except (AuthzError, Unavailable) as reason:
            raise CommandError(reason.message) from None
        self.stdout.write(rotated.token)
        self.stderr.write(f"{rotated.outcome}; {rotated.new.prefix} takes its place")
