"""Settings: what production wants, what has no effect, and the secret. Nonsense stops every command before this one."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings

from authz_project import installation
from authz_project.checkup.check_finding import CheckFinding, fail, judged, ok
from authz_project.schema_state import missing_database
from authz_project.secret_key import secret_that_is_set, weakness_of


def settings_findings() -> Iterator[CheckFinding]:
    yield judged("settings", [], [*_unset(), *_without_effect()], "as production wants them")
    secret = secret_that_is_set()
    if not secret and missing_database():
        yield ok("secret", "`serve` makes one beside the database")
        return
    weakness = weakness_of(secret)
    yield fail("secret", weakness) if weakness else ok("secret", "SECRET_KEY cannot be guessed")


def _unset() -> Iterator[str]:
    for each in installation.unset():
        yield f"{each.name} is not set: {each.why}"


def _without_effect() -> Iterator[str]:
    if settings.DECISION_LOG:
        return
    if settings.DECISION_LOG_DENIED or settings.DECISION_LOG_SAMPLE < 1 or not settings.DECISION_LOG_CONTEXT:
        yield "DECISION_LOG_… says what to write down, but DECISION_LOG not where"
