"""The admin and the page of the interface, walked in a real browser as a person would.

This is over PostgreSQL, and the other tests in a browser are over SQLite.
"""

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from tests.browsing import Browser, browser, driver, person, service_for_people
from tests.service import DEV_KEY, Client

__all__ = ["browser", "driver", "person"]  # fixtures
pytestmark = pytest.mark.long

POLICY = 'actor User {}\n\nresource Repo {\n  permissions = ["read"];\n  roles = ["owner"];\n  "read" if "owner";\n}\n'


@pytest.fixture(scope="module")
def service(migrated_urls, tmp_path_factory):
    url, folder = migrated_urls("postgresql", "browser"), tmp_path_factory.mktemp("browser")
    running = service_for_people(folder, url)
    yield running
    running.stop()


def test_a_person_rules_facts_policies_and_keys(person):
    publish_a_policy(person)
    add_a_fact(person)
    browse_and_delete_facts(person)
    ask_and_be_told_why(person)
    see_what_would_change(person)
    take_a_policy_back(person)
    make_and_revoke_a_key(person)


def publish_a_policy(person: Browser) -> None:
    person.open("/admin/go/versions/")
    person.open("/admin/policy/policyversion/add/")
    person.write_policy(POLICY.replace('"read" if', '"raed" if'))
    person.click("[name=_publish]")
    person.shows("1 problem; not published")
    assert "line 6" in person.one("ol.excerpts").text and '"raed"' in person.written_policy()
    person.write_policy(POLICY)
    person.click("[name=_check]")
    person.shows("not published")
    person.click("[name=_publish]")
    person.shows("version 1 is active")


def add_a_fact(person: Browser) -> None:
    person.open("/admin/facts/signature/add/")
    person.write("#id_fact", 'has_role(User:ann, "owner", Rpo:acme)')
    person.click("[type=submit].default")
    person.shows("Rpo")
    assert person.one(".errorlist").text
    assert person.one("#id_fact").get_attribute("value").endswith("Rpo:acme)")
    person.write("#id_fact", 'has_role(User:ann, "owner", Repo:acme)')
    person.click("[type=submit].default")
    person.shows("Stored: ")


def browse_and_delete_facts(person: Browser) -> None:
    roles = [fact("ann", "owner", f"repo-{number}") for number in range(120)]
    person.service.client().post("/batch", [{"inserts": [*roles, fact("bob", "owner", "acme")]}])
    person.open("/admin/facts/signature/")
    person.shows("122 facts")
    person.follow("Next")
    person.shows("First")
    person.write("#id_id", "bob")
    person.click("#narrowing [type=submit]")
    person.shows("1 fact has an argument whose id starts with “bob”.")
    assert len(person.every("#facts tbody tr")) == 1
    person.follow("bob")
    person.shows("Resources it can access")
    person.driver.back()
    person.click("[name=selected]")
    person.click("#facts .danger")
    person.shows("Delete this fact?")
    person.click("[name=confirmed]")
    person.shows("1 fact deleted")
    assert not may(person, "bob") and may(person, "ann")


def ask_and_be_told_why(person: Browser) -> None:
    person.open("/admin/policy/policyversion/")
    person.follow("Version 1")
    person.follow("Check access")
    person.shows("Fill in the form")
    person.write("#id_actor", "User:ann")
    person.write("#id_action", "read")
    person.write("#id_resource", "Repo:acme")
    person.click("#question .submit [type=submit]")
    person.shows("Why it was allowed")
    assert "Allowed" in person.one(".verdict").text
    assert person.driver.current_url.endswith("?kind=authorize&actor=User:ann&action=read&resource=Repo:acme")
    person.write("#id_actor", "User:bob")
    person.click("#question .submit [type=submit]")
    person.shows("Why it was denied")
    assert "Denied" in person.one(".verdict").text
    ask_for_lists_and_by_another_text(person)


def ask_for_lists_and_by_another_text(person: Browser) -> None:
    person.click(".kinds [data-kind=actions]")
    person.shows("No actions")
    person.write("#id_actor", "User:ann")
    person.click("#question .submit [type=submit]")
    person.shows("1 action")
    person.click(".kinds [data-kind=list]")
    person.write("#id_action", "read")
    person.write("#id_resource", "Repo")
    person.click("#question .submit [type=submit]")
    person.shows("121 resources")
    person.write("#id_filter", "repo-119")
    person.click(".filter [type=submit]")
    person.shows("1 resource")
    person.follow("Explain")
    person.shows("Why it was allowed")
    assert "Allowed" in person.one(".verdict").text
    person.one("#id_text").find_element(By.XPATH, "./ancestor::details/summary").click()
    assert person.one("#id_text").get_attribute("value") == POLICY
    person.write("#id_text", POLICY.replace('"read" if', '"raed" if'))
    person.click("#tried [type=submit]")
    person.shows("the policy has errors")
    assert "raed" in person.one(".excerpts .line.meant").text


def see_what_would_change(person: Browser) -> None:
    person.open("/admin/policy/policyversion/")
    person.follow("Version 1")
    person.follow("Diagram")
    person.shows("owner")
    assert person.every("svg")
    person.driver.back()
    person.follow("Preview impact")
    person.write("#id_text", POLICY.replace('"owner"', '"keeper"'))
    person.click(".submit [type=submit]")
    person.shows("would change")
    assert "newly denied" in person.one("#content-main").text


def take_a_policy_back(person: Browser) -> None:
    person.open("/admin/policy/policyversion/add/")
    person.write_policy(POLICY.replace('"owner"', '"keeper"'))
    person.click("[name=_publish]")
    person.shows("version 2 is active")
    assert not may(person, "ann")
    person.follow("Compare")
    person.shows("keeper")
    person.open("/admin/policy/policyversion/")
    person.shows("Version 2")
    person.follow("Version 1")
    person.follow("Activate")
    person.shows("Changes")
    person.click("[type=submit].default")
    person.shows("version 1 is active")
    assert may(person, "ann")


def make_and_revoke_a_key(person: Browser) -> None:
    person.open("/admin/authz_project/apikey/add/")
    Select(person.one("#id_environment")).select_by_visible_text("default")
    person.write("#id_label", "made by hand")
    person.click("[name=_save]")
    person.shows("shown only once")
    made = Client(person.service.origin, person.one("#token").text)
    assert made.get("/facts").status_code == 200
    person.follow("All API keys")
    person.shows("made by hand")
    row = next(row for row in person.every("#result_list tbody tr") if "made by hand" in row.text)
    row.find_element(By.CSS_SELECTOR, ".action-select").click()
    Select(person.one("[name=action]")).select_by_value("revoke")
    person.click("[name=index]")
    person.shows("1 key is revoked")
    assert made.get("/facts").status_code == 401


def fact(user: str, role: str, repo: str) -> dict:
    args = [("User", user), ("String", role), ("Repo", repo)]
    return {"predicate": "has_role", "args": [{"type": type_name, "id": text} for type_name, text in args]}


def may(person: Browser, user: str) -> bool:
    asked = {"actor_type": "User", "actor_id": user, "action": "read", "resource_type": "Repo", "resource_id": "acme"}
    return person.service.client().post("/authorize", asked).json()["allowed"]


def test_the_page_of_the_interface_can_be_tried(browser):
    browser.open("/api/docs")
    browser.shows("Check access")
    browser.write("#key", DEV_KEY)
    article = browser.one("#get-api-stats")
    article.find_element(By.CSS_SELECTOR, "summary").click()
    browser.driver.execute_script("arguments[0].scrollIntoView()", article)
    article.find_element(By.CSS_SELECTOR, "button").click()
    browser.shows('"num_facts"')
    output = article.find_element(By.CSS_SELECTOR, "output")  # an example on the page has these words, too
    browser.until(lambda _: "200" in output.text, "the request was not answered by a 200")
