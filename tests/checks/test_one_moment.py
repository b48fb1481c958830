"""Reviews and previews are of one moment, whatever is changed between any two of their statements."""

from itertools import count

import pytest

from checks.asking import run
from checks.compare import preview as previewing
from checks.compare import review, review_page, review_walk
from facts.history import prune
from facts.keyset_pages import MentionedAsOf
from policy import publishing
from policy.models import Environment
from tests.checks.conftest import POLICY, fact, publish, remove, store, url
from tests.checks.test_ask_page import words
from tests.waiting import do_before

PUBLIC = '  "read" if is_public(resource);\n'


def change(repos) -> None:
    """Grant something, revoke something, and change the policy."""
    store(repos, fact("is_public", "Repo:q"), fact("has_role", "User:eve", "reader", "Repo:b"))
    remove(repos, fact("has_role", "User:ann", "reader", "Repo:a"))
    publish(repos, POLICY.replace('  "reader" if "writer";\n', ""))


# ---- reviews -------------------------------------------------------------------------------------------------------

PLACES = [
    (review_page, "reviewed"), (review_page, "_side"), (review_page, "_is_as_now"), (review, "changed_facts_between"),
    (review_walk, "stretch_of"), (review_walk.Chunks, "_of_resources"), (MentionedAsOf, "after"),
]  # fmt: skip
REVIEWS = [{"at": "3"}, {"start": "2"}, {"start": "2", "actor_type": "User:ann"}]


@pytest.fixture
def begun(repos):
    """Access that differs between revision 2, with which `repos` begins, and now."""
    assert Environment.objects.get(pk=repos.environment.pk).offset == 2
    store(repos, fact("has_role", "User:ann", "writer", "Repo:c"), fact("has_role", "User:eve", "reader", "Repo:c"))
    remove(repos, fact("has_relation", "Repo:b", "organization", "Org:o"))
    return repos


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[1])
@pytest.mark.parametrize("asked", REVIEWS, ids=["at", "between", "changed"])
@pytest.mark.parametrize("does", ["change", "prune"])
def test_a_review_is_of_the_moments_that_it_names(admin, version, begun, monkeypatch, place, asked, does):
    """If its history is dropped, it is refused; it is never taken for access that did not change."""

    def shown():
        page = admin.get(url("review", version), asked)
        lines = page.context.get("lines")
        return [line for line, _ in lines] if lines else words(page)

    before = shown()
    assert isinstance(before, list) and before
    with monkeypatch.context() as patched:
        done = do_before(patched, *place, lambda: change(begun) if does == "change" else prune(0))
        meanwhile = shown()
    if not done:  # such a review has no need of it
        assert place[1] in ("changed_facts_between", "_of_resources", "after")
    assert meanwhile == before or (does == "prune" and "is no longer available" in meanwhile)


# ---- previews ------------------------------------------------------------------------------------------------------

STEPS = [(publishing, "active_version"), (previewing, "_sides"), (previewing, "changes_between")]
GIVEN = 'allow(User:eve, "read", Repo:q)\nallow(User:eve, "read", Repo:p)'


@pytest.mark.parametrize(
    ("questions", "place"),
    [*((None, step) for step in STEPS), *((GIVEN, step) for step in [*STEPS, (previewing, "questions_of_text")])],
    ids=lambda each: each[1] if isinstance(each, tuple) else "given" if each else "affected",
)
def test_a_preview_is_of_one_moment(repos, monkeypatch, questions, place):
    text, pk = POLICY.replace(PUBLIC, ""), repos.environment.pk

    def shown():
        found = previewing.preview(pk, text, "", questions, seconds=20)
        return [str(each) for each in found.unused], [flip.text for flip in found.flips], found.rules

    before = shown()
    with monkeypatch.context() as patched:
        done = do_before(patched, *place, lambda: change(repos))
        meanwhile = shown()
    after = shown()
    assert done and before != after and meanwhile in (before, after)


UNTIL = """actor User {} resource Doc { permissions = ["read"]; }
has_permission(u: User, "read", d: Doc) if may_read_until(u, d, time) and time > @current_unix_time%s;"""


def test_both_policies_of_a_preview_have_the_same_time(api, monkeypatch):
    """Though seconds pass while the sessions are opened."""
    publish(api, UNTIL % "")
    store(api, *(fact("may_read_until", "User:ann", f"Doc:d{second}", f"Integer:{second}") for second in range(20)))
    seconds = count()
    monkeypatch.setattr(run, "current_time", lambda: next(seconds))
    found = previewing.preview(api.environment.pk, UNTIL % " and time != 99", "", seconds=20)
    assert found.kinds and next(seconds) > 1
    assert [flip.text for flip in found.flips] == []
