"""Register the admin's pages of all apps: in the service's own project, and in others that have `AUTHZ["ADMIN"]`.

They take longer to import than the engine, so other projects do without them.
"""

from importlib import import_module

from policy.core.config import is_service, settings

if is_service() or settings.ADMIN:
    import_module("checks.ask_pages.admin")
