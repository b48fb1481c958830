"""What a question takes does not grow with facts that it is not about: in steps of SQLite's machine, on real tables."""

from unittest.mock import patch

import pytest
from django.db import connection

from checks.asking import ask, run
from checks.asking.ask import Trusted
from checks.asking.limits import Deadline
from checks.asking.question import Asked, Page, allow
from facts import loading
from facts.wire import Fact
from policy.models import default_environment
from policy.publishing import publish
from tests.benchmarks.generate import POLICY, Size, facts_of

OTHERS = 20  # companies that nobody asks about
ROOM = 1.05
KINDS = {"Project": "read", "Repo": "read", "Issue": "read", "Doc": "comment"}
USERS = [("User", (f"user-{number}",)) for number in range(5)]

pytestmark = pytest.mark.parametrize("db", ["sqlite"], indirect=True)


@pytest.fixture
def asker(db):
    environment = default_environment()
    publish(environment.pk, POLICY, None)
    facts = [Fact(*each) for each in facts_of(Size(3_000)) if each[0] != "is_public"]  # or others are listed, too
    loading.load(environment.pk, enumerate(facts))
    return Trusted(environment.pk)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("asks", ["one", "list", "page"])
def test_other_companies_make_no_question_dearer(asker, kind, asks):
    page = Page(100, "") if asks == "page" else None
    things = [(f"{kind.lower()}-{number}",) for number in range(20)] if asks == "one" else [None]
    questions = [
        allow(Asked(*user), Asked("String", (KINDS[kind],)), Asked(kind, thing), () if thing else ("resource",))
        for user in USERS
        for thing in things
    ]
    asked(asker, questions, page)  # compiles, too
    answers, steps = asked(asker, questions, page)
    add_others()
    answers_beside, steps_beside = asked(asker, questions, page)
    assert answers_beside == answers and 100 < steps_beside <= steps * ROOM


def asked(asker, questions, page) -> tuple[list, int]:
    steps = 0

    def is_over(_: Deadline) -> bool:
        nonlocal steps
        steps += 1
        return False

    with patch.object(run, "_STEPS", 1), patch.object(Deadline, "is_over", is_over):
        found = [sorted(ask.answer(asker, each, page=page).of_one) for each in questions]
    return found, steps


def add_others() -> None:
    """The same facts, with other ids: all but the names of roles and relations."""
    columns = [f"a{place}" for place in range(5)]
    ids = [
        f"CASE WHEN {column} = '' OR s.types ->> {place} = 'String' THEN {column} ELSE n.i || {column} END"
        for place, column in enumerate(columns)
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO authz_fact (sig, {', '.join(columns)}, since)"
            f" WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {OTHERS})"
            f" SELECT sig, {', '.join(ids)}, f.since FROM n, authz_fact f JOIN authz_signature s ON s.id = sig"
        )
