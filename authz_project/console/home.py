"""The first page: whether all is well, how much there is, what changed lately, and a question to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import connection
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.module_loading import import_string

from authz_project import examples
from authz_project.console.navigation import may_go, may_view, url_of
from checks.ask_pages.question import suggestions
from facts import read
from facts.history_pages import Step, step_of
from facts.models import Signature
from facts.numbering import types_of_text
from policy import publishing
from policy.active import program_of_version
from policy.errors import AuthzError
from policy.models import Environment, PolicyVersion, Revision
from policy.publishing import Figures
from policy.rules.program import Program

CHANGES = 8  # of an environment, the latest ones
KINDS, LOOKED_AT = 10, 60  # kinds of facts that are shown, and that are counted
COUNTED = 20_000  # facts of a kind: of more than that, no more is said


@dataclass(frozen=True)
class Sign:
    """One thing that is well or not: `state` is good, warn or bad."""

    name: str
    state: str
    text: str
    url: str = ""


@dataclass(frozen=True)
class Amount:
    """How many facts of a kind are stored."""

    kind: str
    count: int
    url: str

    @property
    def shown(self) -> str:
        return f"More than {COUNTED:,}" if self.count > COUNTED else f"{self.count:,}"


@dataclass(frozen=True)
class Try:
    """A question worth trying."""

    question: str
    why: str
    url: str


def shown(request: HttpRequest, environment: Environment) -> dict[str, object]:
    """Return what the page shows to who is logged in."""
    version = publishing.active_version(environment.pk)
    program, trouble = _program(version)
    amounts = _amounts(environment) if may_go(request, "facts") else []
    return {
        "environment": environment,
        "signs": list(_signs(request, environment, version, program, trouble)),
        "amounts": amounts[:KINDS],
        "more_kinds": max(0, len(amounts) - KINDS),
        "changes": _changes(request, environment) if may_go(request, "history") else [],
        "suggested": suggestions(environment.pk, program) if program and may_go(request, "ask") else {},
        "may_ask": program is not None and may_go(request, "ask"),
        "is_new": version is None and not amounts,
        "examples": examples.examples() if version is None and not amounts and may_load_examples(request) else (),
        "tries": _tries(version, environment) if version and may_go(request, "ask") else (),
        "lacks_policy": version is None,
        "lacks_facts": not amounts,
        "may_publish": request.user.has_perm("policy.add_policyversion"),
        "may_add_facts": request.user.has_perm("facts.add_signature"),
        "may_make_keys": request.user.has_perm("authz_project.add_apikey"),
    }


def may_load_examples(request: HttpRequest) -> bool:
    return request.user.has_perm("policy.add_policyversion") and request.user.has_perm("facts.add_signature")


def _tries(version: PolicyVersion, environment: Environment) -> list[Try]:
    """Return questions worth trying, where the policy is that of an example."""
    example = next((each for each in examples.examples() if each.policy == version.source), None)
    if example is None:
        return []
    ask = url_of("ask")
    return [
        Try(str(each), each.why, f"{ask}?{urlencode({'environment': environment.slug, **each.parameters})}")
        for each in example.questions
    ]


def _program(version: PolicyVersion | None) -> tuple[Program | None, str]:
    """Return the active program; where the compiler does not take its text any more, why."""
    if version is None:
        return None, ""
    try:
        return program_of_version(version.pk), ""
    except AuthzError as reason:
        return None, reason.message


# ---- is it well ------------------------------------------------------------------------------------------------------


def _signs(
    request: HttpRequest, environment: Environment, version: PolicyVersion | None, program: Program | None, trouble: str
) -> Iterator[Sign]:
    yield Sign("Database", "good", _database())
    if (asked := questions_a_minute()) is not None:
        yield Sign("Decisions", "good", f"{asked:,} in the last minute")
    if not may_view(request, "policy.policyversion"):
        return
    if version is None:
        yield Sign("Policy", "warn", "No active policy: every check is denied")
        return
    if program is None:
        yield Sign("Policy", "bad", f"Version {version.number} no longer compiles: {trouble}", url_of("policy"))
        return
    warnings = len(program.warnings)
    told = f", with {warnings} warning{'s'[: warnings > 1]}" if warnings else ""
    yield Sign("Policy", "warn" if warnings else "good", f"Version {version.number}{told}", url_of("policy"))
    yield _sign_of_tests(version, program)
    if not may_go(request, "facts"):
        return
    unused = publishing.ignored_facts(environment.pk, program)
    facts = "fact" if unused.count == 1 and not unused.or_more else "facts"
    text = f"{unused} {facts} the policy doesn't use" if unused.count else "All used by the policy"
    yield Sign("Facts", "warn" if unused.count else "good", text, url_of("facts") if unused.count else "")


def questions_a_minute() -> int | None:
    """Return how many all workers answered; None where this server has no metrics."""
    if not settings.METRICS_FOLDER:
        return None
    value_of: Callable[[Path, str], float | None] = import_string("authz_project.metrics.value_of")
    found = value_of(Path(settings.METRICS_FOLDER), "authz_questions_a_minute")
    return None if found is None else int(found)


def _sign_of_tests(version: PolicyVersion, program: Program) -> Sign:
    """Tell what came of the tests when the version was published; an older one does not say."""
    if not program.tests:
        return Sign("Tests", "warn", "The policy has no tests", url_of("policy"))
    figures = Figures.of_version(version)
    tests = figures.tests_text or f"{len(program.tests):,} in the policy"
    covered = f"; {figures.coverage_text} covered" if figures.coverage_text else ""
    return Sign("Tests", figures.tests_mood or "good", f"{tests}{covered}", url_of("policy"))


def _database() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT sqlite_version()" if connection.vendor == "sqlite" else "SHOW server_version")
        (version,) = cursor.fetchone()
    return f"{connection.display_name} {version.split()[0]}"


# ---- how much, and what changed --------------------------------------------------------------------------------------


def _amounts(environment: Environment) -> list[Amount]:
    """Return the kinds of facts, those with most facts first."""
    kinds = Signature.objects.filter(environment=environment).order_by("predicate", "types")[:LOOKED_AT]
    found = [_amount(kind) for kind in kinds]
    return sorted((each for each in found if each.count), key=lambda each: -each.count)


def _amount(kind: Signature) -> Amount:
    url = f"{reverse('admin:facts_signature_changelist')}?environment={kind.environment_id}&predicate={kind.predicate}"
    return Amount(
        f"{kind.predicate}({', '.join(types_of_text(kind.types))})", read.count_up_to(COUNTED + 1, [kind.pk]), url
    )


def _changes(request: HttpRequest, environment: Environment) -> list[Step]:
    found = Revision.objects.filter(environment=environment).order_by("-number").select_related("policy_version")
    revisions = list(found.defer("policy_version__source")[: CHANGES + 1])
    may_view_policies = may_view(request, "policy.policyversion")
    pairs = zip(revisions, [*revisions[1:], None])
    return [step_of(each, earlier, may_view_policies) for each, earlier in pairs][:CHANGES]
