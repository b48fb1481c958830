"""The end of a key."""

from typing import Any

from django.core.management.base import CommandError

from authz_project.keys import good_predecessors, key_named, revoke_key
from policy.errors import NotFound
from policy.management.command import ServiceCommand


class Command(ServiceCommand):
    help = "Revoke an API key. It is refused from the next request on."

    def add_arguments(self, parser):
        parser.add_argument("key", help="its label, or the key without its secret, as list_api_keys shows it")

    def handle(self, *, key: str, **options: Any) -> None:
        try:
            found = key_named(key)
        except NotFound as reason:
            raise CommandError(reason.message) from None
        revoke_key(found)
        self.stdout.write(f"{found.prefix} is revoked")
        for each in good_predecessors(found):
            until = f" until {each.expires_at:%Y-%m-%d %H:%M} UTC" if each.expires_at else ""
            told = f"{each.prefix}, which it took the place of, is still good{until}"
            self.stderr.write(f"warning: {told}; revoke it as well if it is to end now")
