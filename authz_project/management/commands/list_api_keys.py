"""Which keys there are."""

from typing import Any

from authz_project.keys import scopes_text, state_of, used_text
from authz_project.models import ApiKey
from policy.ground.clock import now, time_of
from policy.management.command import ServiceCommand


class Command(ServiceCommand):
    help = "List the API keys of each environment, the oldest first, without their secrets."

    def handle(self, **options: Any) -> None:
        moment = time_of(now())
        for key in ApiKey.objects.order_by("environment__slug", "pk"):
            made = f"made {key.created_at:%Y-%m-%d}{f' by {key.created_by}' if key.created_by else ''}"
            parts = [key.prefix, state_of(key, moment), scopes_text(key), used_text(key), made, key.label]
            self.stdout.write("  ".join(filter(None, parts)))
