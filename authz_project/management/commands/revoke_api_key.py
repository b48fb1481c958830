"""The end of a key."""

from typing import Any

from django.core.management.base import CommandError

from authz_project.keys import revoke_key
from authz_project.models import ApiKey
from policy.management.command import ServiceCommand


class Command(ServiceCommand):
    help = "Revoke an API key. It is refused from the next request on."

    def add_arguments(self, parser):
        parser.add_argument("prefix", help="the key without its secret, as list_api_keys shows it")

    def handle(self, *, prefix: str, **options: Any) -> None:
        # Whoever pastes the whole key means the key.
        key = ApiKey.objects.filter(prefix="_".join(prefix.split("_")[:3])).first()
        if key is None:
            raise CommandError("there is no such key; list_api_keys shows them")
        revoke_key(key)
        self.stdout.write(f"{key.prefix} is revoked")
