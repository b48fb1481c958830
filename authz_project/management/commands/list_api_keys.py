"""Which keys there are."""

from typing import Any

from django.utils import timezone

from authz_project.models import ApiKey
from policy.management.command import ServiceCommand


class Command(ServiceCommand):
    help = "List the API keys of each environment, the oldest first, without their secrets."

    def handle(self, **options: Any) -> None:
        for key in ApiKey.objects.order_by("environment__slug", "pk"):
            used = f"last used {key.last_used_at:%Y-%m-%d %H:%M}" if key.last_used_at else "never used"
            self.stdout.write(f"{key.prefix}  {state_of(key)}  {used}  {key.label}".rstrip())


def state_of(key: ApiKey) -> str:
    if key.revoked_at:
        return f"revoked {key.revoked_at:%Y-%m-%d}"
    if key.expires_at is None:
        return "active"
    return f"{'expired' if key.expires_at <= timezone.now() else 'active until'} {key.expires_at:%Y-%m-%d}"
