"""Authorization inside a Django project: the engine on the project's own database, models and transactions.

* `bindings`      what the project says of its models: `bind`, `type_of`
* `tables`        bindings as tables of the engine; objects as values
* `interface`     what both ways to ask have in common: `permitted`, `who`, `require`, `facts`
* `asking`        `authorize`, `actions`, `explain` with the engine of the project; `remote` with a server
* `views`         decorators, the permission backend and the admin's mixin; `rest` for Django REST framework
* `testing`       assertions; `project` the system checks, and the policy file after `migrate`

Names are imported when they are first used: a project imports this package as it starts, the engine later.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from localsql.django.bindings import bind, type_of
from policy.core.config import settings

_PLACES = {
    **dict.fromkeys(("facts", "permitted", "require", "who"), "interface"),
    "ServerUnreachable": "remote",
    **dict.fromkeys(("PermissionBackend", "PermittedAdmin", "requires"), "views"),
    **dict.fromkeys(("Permitted", "PermittedFilter"), "rest"),
}
_ASKING = ("actions", "authorize", "explain")
_INNER = ("condition_sql", "delete_facts", "insert_facts", "publish_policy")

__all__ = [*_PLACES, *_ASKING, "bind", "type_of"]


def __getattr__(name: str) -> Any:
    if name in _ASKING or name in _INNER:
        place = "remote" if settings.URL else "asking"
    elif name in _PLACES:
        place = _PLACES[name]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{place}"), name)
