"""Publishing with a second person: requests, and who approves them."""

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.test import Client

from authz_project import examples
from authz_project.keys import create_key
from authz_project.roles import create_groups
from policy import publishing
from policy.core.journal import MOVED, By
from policy.errors import IsCopy, Moved
from policy.models import Environment, PolicyDraft, PolicyVersion, PublishRequest, Revision
from policy.publishing import NotApproved, active_number, approve, publish, reject

POLICY = 'actor User {} resource Doc { permissions = ["read"]; roles = ["reader"]; "read" if "reader"; }'
WIDER = POLICY.replace('"read" if', '"read" if "guest"; "read" if').replace('"reader"]', '"reader", "guest"]')
FAILING = POLICY + ' test "t" { assert allow(User{"ann"}, "read", Doc{"1"}); }'


@pytest.fixture
def people(db) -> dict[str, User]:
    create_groups("default", apps)
    named = {"ann": "publisher", "ben": "publisher", "eve": "editor", "vic": "viewer"}
    users = {name: User.objects.create_user(name, is_staff=True) for name in named}
    for name, role in named.items():
        users[name].groups.add(Group.objects.get(name=role))
    return users


@pytest.fixture
def where(environment) -> int:
    """An environment with an active policy, where publishing needs approval."""
    publish(environment.pk, POLICY, None)
    type(environment).objects.filter(pk=environment.pk).update(needs_approval=True)
    return environment.pk


def by(user: User) -> By:
    return By(f"admin {user.username}", user_id=user.pk)


def requested(where: int, user: User, text: str = WIDER, **options: object) -> PublishRequest:
    done = publish(where, text, None, by=by(user), **options)
    assert done.is_requested and active_number(where) == 1
    return done.version.requests.get()


def browser_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def sent(where: int, user: User, **more: object) -> dict[str, object]:
    return {"environment": where, "source": WIDER, "seen": 1, "filename": "", "person": user.pk, "_publish": "x"} | more


# ---- making requests -------------------------------------------------------------------------------------------------


def test_a_key_only_requests_to_publish(api, where):
    before = Revision.objects.count()
    for _ in range(2):  # repeated, it is the same request
        answer = api.post("/policy", {"src": WIDER, "note": "guests read"})
        assert answer.status_code == 202
        assert answer.json()["message"].startswith("policy version 2 is not active until another publisher approves it")
    assert active_number(where) == 1 and Revision.objects.count() == before
    assert api.get("/policy").json()["policy"]["src"] == POLICY
    request = PublishRequest.objects.get()
    assert (request.author.partition(" ")[0], request.replaces, request.version.note) == ("key", 1, "guests read")


def test_commands_only_request_to_publish_and_to_activate(where, tmp_path, capsys):
    (tmp_path / "new.polar").write_text(WIDER)
    call_command("load_policy", str(tmp_path / "new.polar"))
    call_command("load_policy", version_number=2)
    assert capsys.readouterr().out.count("is not active until another publisher approves it") == 2
    assert active_number(where) == 1


def test_a_publisher_only_requests_and_cannot_approve_it(people, where):
    browser = browser_of(people["ann"])
    page = browser.post("/admin/policy/policyversion/add/", sent(where, people["ann"]), follow=True).content.decode()
    assert "is not active until another publisher approves it" in page and "waits for approval" in page
    request = PublishRequest.objects.get()
    there = f"/admin/policy/policyversion/{request.version_id}/activate/"
    assert "Another publisher must approve this request." in browser.get(there).content.decode()
    for data in ({"request": request.pk, "approve": "x"}, {"seen": 1, "force": "on"}):
        browser.post(there, data)
        assert active_number(where) == 1
    assert not PublishRequest.objects.filter(outcome="approved").exists()


def test_an_earlier_version_is_activated_by_two_persons_too(people, where):
    other = requested(where, people["ann"])
    approve(other, by(people["ben"]))
    back = publishing.activate(where, 1, by=by(people["ben"]))
    assert back.is_requested and active_number(where) == 2
    approve(back.version.requests.get(), by(people["ann"]))
    assert active_number(where) == 1


def test_an_editor_requests_to_publish_in_any_environment(people, environment):
    publish(environment.pk, POLICY, None)
    browser = browser_of(people["eve"])
    assert "Request to publish" in browser.get("/admin/policy/policyversion/add/").content.decode()
    browser.post("/admin/policy/policyversion/add/", sent(environment.pk, people["eve"]))
    request = PublishRequest.objects.get()
    assert active_number(environment.pk) == 1 and request.user == people["eve"]
    there = f"/admin/policy/policyversion/{request.version_id}/activate/"
    assert browser.post(there, {"request": request.pk, "approve": "x"}).status_code == 403
    browser_of(people["ann"]).post(there, {"request": request.pk, "approve": "x"})
    assert active_number(environment.pk) == 2
    viewer = browser_of(people["vic"])
    assert viewer.post("/admin/policy/policyversion/add/", sent(environment.pk, people["vic"])).status_code == 403


@pytest.mark.parametrize(("follows", "refusal"), [("{}", IsCopy), (MOVED, Moved)])
def test_nothing_is_requested_in_a_copy(people, environment, follows, refusal):
    """The number of a version there would be that of another text, which the main service publishes later."""
    type(environment).objects.filter(pk=environment.pk).update(follows=follows)
    with pytest.raises(refusal):
        publish(environment.pk, POLICY, None, by=by(people["eve"]), may_publish=False)
    assert not PolicyVersion.objects.exists() and not PublishRequest.objects.exists()


def test_a_setting_that_changes_while_somebody_publishes_counts(people, where, monkeypatch):
    answers = iter([False, True])
    monkeypatch.setattr(publishing, "needs_approval", lambda _: next(answers))
    with pytest.raises(NotApproved, match="needs approval now"):
        publish(where, WIDER, None)
    assert active_number(where) == 1


def test_an_example_waits_for_approval(environment):
    type(environment).objects.update(needs_approval=True)
    example = examples.examples()[0]
    with pytest.raises(NotApproved, match="Load the example again"):
        examples.load(environment.pk, example, By("x"))
    assert active_number(environment.pk) is None


def test_what_cannot_be_published_cannot_be_requested(api, where):
    assert api.post("/policy", {"src": "nonsense"}).status_code == 400
    assert api.post("/policy", {"src": FAILING}).json()["error_type"] == "TestsFailed"
    assert not PublishRequest.objects.exists()


# ---- deciding --------------------------------------------------------------------------------------------------------


def test_another_publisher_sees_the_impact_and_approves(people, api, where):
    fact = {"predicate": "has_role", "args": [
        {"type": "User", "id": "gus"}, {"type": "String", "id": "guest"}, {"type": "Doc", "id": "1"},
    ]}  # fmt: skip
    publish(where, WIDER + "#", None, by=by(people["ann"]))
    api.post("/facts", fact)
    request = PublishRequest.objects.get()
    browser = browser_of(people["ben"])
    assert "Version 2 waits for approval" in browser.get("/admin/").content.decode()
    there = f"/admin/policy/policyversion/{request.version_id}/activate/"
    page = browser.get(there).content.decode()
    assert "Approve and activate version 2" in page and "newly allowed" in page and "gus" in page
    browser.post(there, {"request": request.pk, "approve": "x", "comment": "agreed in the meeting"})
    assert active_number(where) == 2
    request.refresh_from_db()
    assert (request.outcome, request.reviewer) == ("approved", "admin ben")
    assert Revision.objects.filter(environment=where).latest("number").author == "admin ben"
    told = browser.get(f"/admin/policy/policyversion/{request.version_id}/change/").content.decode()
    assert "by admin ann; approved" in told and "by admin ben: agreed in the meeting" in told


def test_whoever_made_the_key_cannot_approve_what_it_requested(people, environment, where):
    create_key(environment, "deployment", by=by(people["ann"]))
    author = f'key {environment.api_keys.get(label="deployment").pk} "deployment"'
    publish(where, WIDER, None, by=By(author))
    request = PublishRequest.objects.get()
    with pytest.raises(NotApproved, match="you made this request, or the key"):
        approve(request, by(people["ann"]))
    approve(request, by(people["ben"]))
    assert active_number(where) == 2


def test_a_new_name_does_not_make_another_person(people, where):
    request = requested(where, people["ann"])
    User.objects.filter(username="ann").update(username="anna")
    anna = User.objects.get(username="anna")
    with pytest.raises(NotApproved, match="you made this request"):
        approve(request, by(anna))


def test_a_rejected_request_stays_rejected(people, where):
    request = requested(where, people["ann"])
    there = f"/admin/policy/policyversion/{request.version_id}/activate/"
    browser = browser_of(people["ben"])
    browser.post(there, {"request": request.pk, "reject": "x", "comment": "too wide"})
    request.refresh_from_db()
    assert (request.outcome, request.comment) == ("rejected", "too wide")
    assert "no longer open" in browser.post(there, {"request": request.pk, "approve": "x"}).content.decode()
    with pytest.raises(NotApproved, match="no longer open"):
        approve(request, by(people["ben"]))
    assert active_number(where) == 1


def test_only_one_decision_counts(people, where):
    request = requested(where, people["ann"])
    reject(request, by(people["ann"]), "")
    with pytest.raises(NotApproved, match="no longer open"):
        approve(request, by(people["ben"]))
    with pytest.raises(NotApproved, match="no longer open"):
        reject(request, by(people["ben"]), "")


def test_a_request_is_outdated_when_the_active_policy_moved(people, where):
    first, second = requested(where, people["ann"]), requested(where, people["ann"], WIDER + " ")
    approve(first, by(people["ben"]))
    with pytest.raises(NotApproved, match="the active policy has changed"):
        approve(second, by(people["ben"]))
    second.refresh_from_db()
    assert active_number(where) == 2 and second.outcome == ""


def test_what_became_active_without_approval_is_not_approved_later(people, where):
    request = requested(where, people["ann"])
    Environment.objects.update(needs_approval=False)
    publishing.activate(where, request.version.number, by=by(people["ann"]))
    with pytest.raises(NotApproved, match="the active policy has changed"):
        approve(request, by(people["ben"]))


def test_a_request_is_outdated_when_its_author_changed_the_draft(people, environment, where):
    request = requested(where, people["ann"])
    PolicyDraft.objects.create(user=people["ann"], environment=environment, source=POLICY + "  ", stamp=1)
    with pytest.raises(NotApproved, match="has changed the draft"):
        approve(request, by(people["ben"]))
    page = browser_of(people["ben"]).get(f"/admin/policy/policyversion/{request.version_id}/activate/")
    assert "changed the draft since the request. Reject it" in page.content.decode()
    assert "Approve and activate" not in page.content.decode()


def test_failing_tests_are_approved_only_if_they_were_requested_so(people, where):
    request = requested(where, people["ann"], FAILING, force=True)
    approve(request, by(people["ben"]))
    assert active_number(where) == 2


def test_superusers_alone_change_whether_approval_is_needed(people, where):
    there = f"/admin/policy/environment/{where}/change/"
    assert browser_of(people["ann"]).post(there, {"name": "x"}).status_code == 403
    root = User.objects.create_superuser("root", password="right")
    assert browser_of(root).post(there, {"name": "x"}).status_code == 302
    assert not publishing.needs_approval(where)
    assert Revision.objects.filter(environment=where).latest("number").author == "admin root"
