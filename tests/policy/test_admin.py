"""Policies in the admin: seen, compared, edited and taken back by people, without JavaScript."""

import re
from html import unescape

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client

from facts import store
from facts.store import Inserts
from policy import publishing
from policy.models import PolicyVersion
from policy.pages import admin
from tests.policy.test_publishing import OTHER, POLICY, TESTED, role, tests_fail, tests_pass  # noqa: F401  fixtures

pytestmark = pytest.mark.one_database

VERSIONS = "/admin/policy/policyversion/"
EDITOR = f"{VERSIONS}add/"


class Person:
    """Someone who is logged in, and sends the forms that they are shown."""

    def __init__(self, *permissions: str, facts: str = ""):
        user = User.objects.create_user("-".join(permissions) or "nobody", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=[f"{p}_policyversion" for p in permissions]))
        self.user = user
        if facts:
            user.user_permissions.add(Permission.objects.get(codename=f"{facts}_signature"))
        self.client = Client(enforce_csrf_checks=True)
        self.client.force_login(user)

    def get(self, path: str):
        return self.client.get(path)

    def send(self, path: str, **fields: str):
        """The form of the page at the path, with some fields changed. None leaves a field out."""
        page = self.get(path)
        shown = dict(re.findall(r'<input type="(?:hidden|text)" name="(\w+)".*?value="([^"]*)"', page.content.decode()))
        source = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", page.content.decode(), re.DOTALL)
        if source:
            shown["source"] = unescape(source[1])
        return self.client.post(path, {name: text for name, text in (shown | fields).items() if text is not None})


@pytest.fixture
def person(db):
    return Person("view", "add", "change", facts="view")


def published(environment, *texts: str) -> list[PolicyVersion]:
    return [publishing.publish(environment.pk, text, "main.polar").version for text in texts]


def page_of(version: PolicyVersion, name: str = "change") -> str:
    return f"{VERSIONS}{version.pk}/{name}/"


def text_of(answer) -> str:
    """What is read on a page, without the tags."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", answer.content.decode())))


# ---- versions --------------------------------------------------------------------------------------------


def test_versions_are_listed_without_their_texts(environment, person):
    published(environment, POLICY, OTHER)
    answer = person.get(VERSIONS)
    assert answer.status_code == 200
    shown = text_of(answer)
    assert "Version 1" in shown and "Version 2" in shown and "main.polar" in shown
    assert answer.content.decode().count('class="badge active"') == 1
    assert all("source" in version.get_deferred_fields() for version in answer.context["cl"].result_list)


def test_a_version_is_shown_with_numbered_lines(environment, person):
    answer = person.get(page_of(published(environment, POLICY)[0]))
    html = answer.content.decode()
    assert html.count('class="line"') == POLICY.count("\n")
    assert '<span class="keyword">resource</span> <span class="type">Folder</span> {' in html
    assert "active" in text_of(answer)


def test_warnings_are_shown_with_the_version(environment, person):
    answer = person.get(page_of(published(environment, POLICY + "p(x: User) if q(x, y);\n")[0]))
    assert "1 warning" in text_of(answer)


def test_what_stands_in_a_policy_is_text(environment, person):
    script = "<script>alert(1)</script>"
    version = published(environment, f'# {script}\nactor User {{}}\nis_fun(User{{"{script}"}});\n')[0]
    other = published(environment, f"# {script}{script}\n")[0]
    for path in (page_of(version), page_of(other, "difference"), page_of(version, "activate"), EDITOR):
        assert script not in person.get(path).content.decode()
    refused = person.send(EDITOR, source=f'p(x) if x = "{script}";\n"{script}" {script}', filename=script, _publish="1")
    assert script not in refused.content.decode() and script in unescape(refused.content.decode())


def test_a_version_that_the_compiler_refuses_is_still_shown(environment, person):
    version = PolicyVersion.objects.create(environment=environment, number=1, source="resource {", digest="")
    for name in ("change", "activate"):
        answer = person.get(page_of(version, name))
        assert answer.status_code == 200
        assert "no longer compiles" in text_of(answer)
    assert person.client.post(page_of(version, "activate"), {}).status_code == 403  # no token
    token = re.search(r'csrfmiddlewaretoken" value="(\w+)"', person.get(EDITOR).content.decode())[1]
    person.client.post(page_of(version, "activate"), {"csrfmiddlewaretoken": token})
    assert publishing.active_version(environment.pk) is None


@pytest.mark.parametrize("name", ["change", "difference", "activate"])
@pytest.mark.parametrize("number", ["0", "x", "99999999", "9" * 40])
def test_a_version_that_does_not_exist_leads_back(person, name, number):
    assert person.get(f"{VERSIONS}{number}/{name}/").status_code == 302


def test_versions_cannot_be_deleted_or_changed(environment, person):
    version = published(environment, POLICY)[0]
    assert person.get(page_of(version, "delete")).status_code == 403
    person.client.post(page_of(version), {"source": OTHER})
    version.refresh_from_db()
    assert version.source == POLICY


# ---- differences -----------------------------------------------------------------------------------------


def test_a_version_is_compared_with_the_active_one(environment, person):
    old, _ = published(environment, POLICY, POLICY.replace('"owner"]', '"owner", "guest"]'))
    answer = person.get(page_of(old, "difference"))
    assert "From version 2 active to version 1" in text_of(answer)
    assert text_of(answer).count('roles = ["viewer", "owner"') == 2
    assert (answer.context["added"], answer.context["removed"]) == (1, 1)


def test_the_active_version_is_compared_with_the_one_before(environment, person):
    _, _, newest = published(environment, POLICY, OTHER, POLICY + "#\n")
    assert "From version 2 to version 3 active" in text_of(person.get(page_of(newest, "difference")))
    assert "From version 1 to version 3" in text_of(person.get(page_of(newest, "difference") + "?from=1"))
    assert "From an empty policy" in text_of(person.get(page_of(newest, "difference") + "?from=77"))


def test_pages_of_long_policies_are_cut(environment, person, monkeypatch):
    monkeypatch.setattr(admin, "_MOST_LINES", 5)
    exact, longer = published(environment, "#\n" * 5, "#\n" * 5 + "# six\n# seven")
    assert "more line" not in text_of(person.get(page_of(exact)))
    answer = person.get(page_of(longer))
    assert "2 more lines" in text_of(answer) and len(answer.context["lines"]) == 5
    assert "1 more line." in text_of(person.get(page_of(longer, "difference")))


# ---- activating ------------------------------------------------------------------------------------------


def test_an_older_version_is_made_active_after_a_question(environment, person):
    old, new = published(environment, POLICY, OTHER)
    store.apply(environment.pk, [Inserts([role("ann", "reader", "Document", "d")])])
    question = person.get(page_of(old, "activate"))
    assert "Activate version 1" in text_of(question)
    assert "1 stored fact is not used in policy, kept and ignored." in text_of(question)
    assert publishing.active_version(environment.pk) == new
    answer = person.client.get(person.send(page_of(old, "activate"))["Location"])
    assert publishing.active_version(environment.pk) == old
    assert "Policy version 1 is active; 1 stored fact is not used in policy" in text_of(answer)
    assert LogEntry.objects.get().change_message == "Activated."


@pytest.mark.parametrize("facts", ["", "add", "view", "change"])
def test_stored_facts_are_counted_for_who_may_view_them(environment, facts):
    old, _ = published(environment, POLICY, OTHER)
    store.apply(environment.pk, [Inserts([role("ann", "reader", "Document", "d")])])
    person = Person("view", "add", "change", facts=facts)
    told = [person.get(page_of(old)), person.get(page_of(old, "activate"))]
    told.append(person.send(EDITOR, source=POLICY, _check="1"))
    told.append(person.client.get(person.send(page_of(old, "activate"))["Location"]))
    for page in told:
        text = text_of(page)
        assert ("not used in policy" in text or "Unused facts" in text) == (facts in ("view", "change"))
    assert "Policy version 1 is active" in text_of(told[-1])


# ---- the editor ------------------------------------------------------------------------------------------


def test_the_editor_begins_with_the_active_policy(environment, person):
    old, _ = published(environment, POLICY, "\n" + OTHER)
    assert person.get(EDITOR).context["source"] == "\n" + OTHER
    assert person.get(f"{EDITOR}?from={old.pk}").context["source"] == POLICY
    html = person.get(EDITOR).content.decode()
    assert f"\n\n{OTHER}" in unescape(html)  # browsers drop the first line end of a text area


def test_a_policy_is_published(environment, person):
    answer = person.send(EDITOR, source=POLICY.replace("\n", "\r\n"), filename="main.polar", _publish="1")
    version = publishing.active_version(environment.pk)
    assert (answer.status_code, answer["Location"]) == (302, page_of(version))
    assert (version.source, version.filename) == (POLICY, "main.polar")
    assert "Policy version 1 is active." in text_of(person.get(answer["Location"]))
    assert LogEntry.objects.get().change_message == "published"
    again = person.send(EDITOR, _publish="1")
    assert "nothing changed" in text_of(person.get(again["Location"]))


def test_problems_are_shown_at_their_lines_and_nothing_is_lost(environment, person):
    wrong = POLICY.replace('"viewer" if "owner"', '"viewr" if "owner"') + "resource Thing extends Nix {}\n"
    answer = person.send(EDITOR, source=wrong, filename="mine.polar", _publish="1")
    assert answer.status_code == 200
    shown = text_of(answer)
    assert "2 problems; not published" in shown
    assert "line 5, column 3" in shown and "did you mean viewer?" in shown
    assert '<mark><span class="string">&quot;viewr&quot;</span></mark>' in answer.content.decode()
    assert '<b class="error" title="viewr is not declared' in answer.content.decode()
    assert (answer.context["source"], answer.context["filename"]) == (wrong, "mine.polar")
    assert 'value="mine.polar"' in answer.content.decode() and "Publish even though" not in shown
    assert publishing.active_version(environment.pk) is None


def test_a_policy_is_checked_without_publishing(environment, person, tests_pass):  # noqa: F811
    answer = person.send(EDITOR, source=TESTED + "p(x: User) if q(x, y);\n", _check="1")
    assert "The policy is valid; 1 test passed; not published" in text_of(answer)
    assert answer.content.decode().count('<li class="warning">') == 1
    assert publishing.active_version(environment.pk) is None


def test_failing_tests_may_be_overridden(environment, person, tests_fail):  # noqa: F811
    answer = person.send(EDITOR, source=TESTED, _publish="1")
    assert "1 of 1 test failed; not published" in text_of(answer)
    assert "test viewers view: expected a result" in text_of(answer)
    assert 'name="force"' in answer.content.decode()
    assert publishing.active_version(environment.pk) is None
    assert 'name="force"' in person.send(EDITOR, source=TESTED, _check="1").content.decode()
    answer = person.send(EDITOR, source=TESTED, force="on", _publish="1")
    assert publishing.active_version(environment.pk).source == TESTED
    shown = person.get(answer["Location"]).content.decode()
    assert re.search(r'<li class="warning">[^<]*1 of 1 test failed', shown), "not as a success"


def test_a_version_that_was_published_meanwhile_is_not_overlooked(environment, person):
    published(environment, POLICY)
    answer = person.send(EDITOR, source=OTHER, seen="", _publish="1")
    assert "version 1 became active while you were editing" in text_of(answer).lower()
    assert answer.context["source"] == OTHER and answer.context["seen"] == 1
    assert publishing.active_version(environment.pk).source == POLICY
    person.send(EDITOR, source=OTHER, seen="1", _publish="1")
    assert publishing.active_version(environment.pk).source == OTHER


def test_other_environments_have_their_own_policies(new_api, person):
    one, other = new_api().environment, new_api("other").environment
    published(one, POLICY)
    assert person.get(f"{EDITOR}?environment=other").context["source"] == ""
    person.send(f"{EDITOR}?environment=other", source=OTHER, _publish="1")
    assert publishing.active_version(other.pk).source == OTHER
    assert publishing.active_version(one.pk).source == POLICY


@pytest.mark.parametrize(
    "fields",
    [{"environment": "99999"}, {"environment": None}, {"source": "a\0b"}, {"filename": "x" * 1001}, {"seen": "x"}],
    ids=["unknown-environment", "no-environment", "nul", "long-name", "seen"],
)
def test_fields_that_no_page_sends_are_refused(environment, person, fields):
    answer = person.send(EDITOR, **({"source": POLICY, "_publish": "1"} | fields))
    assert answer.status_code == 200
    assert "not published. correct the errors below" in text_of(answer).lower()
    assert publishing.active_version(environment.pk) is None


# ---- permissions -----------------------------------------------------------------------------------------


def test_who_may_only_look_changes_nothing(environment, db):
    old, new = published(environment, POLICY, OTHER)
    reader = Person("view")
    shown = [reader.get(path) for path in (VERSIONS, page_of(old), page_of(old, "difference"))]
    assert [answer.status_code for answer in shown] == [200] * 3
    assert not any(path in answer.content.decode() for answer in shown for path in (EDITOR, "/activate/"))
    assert reader.get(EDITOR).status_code == reader.get(page_of(old, "activate")).status_code == 403
    assert publishing.active_version(environment.pk) == new


def test_who_may_not_look_sees_no_text(environment, db):
    version = published(environment, POLICY)[0]
    writer, nobody = Person("add"), Person()
    for name in ("change", "difference"):
        assert writer.get(page_of(version, name)).status_code == 403
    assert writer.get(EDITOR).context["source"] == ""
    assert writer.get(f"{EDITOR}?from={version.pk}").status_code == 403
    assert writer.send(EDITOR, source=OTHER, _publish="1").status_code == 302
    assert publishing.active_version(environment.pk).source == OTHER
    for path in (VERSIONS, EDITOR, page_of(version), page_of(version, "activate")):
        assert nobody.get(path).status_code == 403


def test_forms_without_a_token_are_refused(environment, person):
    version = published(environment, POLICY)[0]
    assert person.client.post(EDITOR, {"source": OTHER}).status_code == 403
    assert person.client.post(page_of(version, "activate")).status_code == 403


def test_strangers_are_asked_to_log_in(environment):
    version = published(environment, POLICY)[0]
    for path in (VERSIONS, EDITOR, page_of(version), page_of(version, "difference"), page_of(version, "activate")):
        answer = Client().get(path)
        assert answer.status_code == 302 and "/admin/login/" in answer["Location"]
