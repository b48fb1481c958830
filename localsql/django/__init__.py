"""Authorization inside a Django project: the engine on the project's own database, models and transactions.

* `bindings`      what the project says of its models: `bind`, `type_of`
* `tables`        bindings as tables of the engine; objects as values
* `asking`        `authorize`, `actions`, `who`, `require`, `explain`, `facts`; `permitted`, the condition for querysets
* `views`         decorators, the permission backend and the admin's mixin; `rest` for Django REST framework
* `testing`       assertions; `project` the system checks, and the policy file after `migrate`

Names are imported when they are first used: a project imports this package as it starts, the engine later.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from localsql.django.bindings import bind, type_of

_PLACES = {
    **dict.fromkeys(("PermissionBackend", "PermittedAdmin", "requires"), "views"),
    **dict.fromkeys(("Permitted", "PermittedFilter"), "rest"),
    **dict.fromkeys(("actions", "authorize", "explain", "facts", "permitted", "require", "who"), "asking"),
}

__all__ = [*_PLACES, "bind", "type_of"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
