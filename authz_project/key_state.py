"""What is said of a key where keys are shown."""

from datetime import datetime

from authz_project.models import ApiKey
from policy.scopes import Scope


def state_of(key: ApiKey, moment: datetime) -> str:
    """Say whether it is good at the moment, and until when."""
    if key.revoked_at:
        return f"revoked {key.revoked_at:%Y-%m-%d}"
    if key.expires_at is None:
        return "active"
    return f"{'expired' if key.expires_at <= moment else 'active until'} {key.expires_at:%Y-%m-%d}"


def scopes_text(key: ApiKey) -> str:
    return "all" if len(key.scopes) == len(Scope) else " ".join(key.scopes) or "nothing"


def used_text(key: ApiKey) -> str:
    return f"last used {key.last_used_at:%Y-%m-%d}" if key.last_used_at else "never used"
