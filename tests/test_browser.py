"""The admin and the page of the interface, walked in a real browser as a person would."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.conftest import DATABASES
from tests.service import DEV_KEY, ROOT, Client, Service, start_service

pytestmark = pytest.mark.long

WITHIN = 20  # seconds
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--window-size=1280,960",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--force-prefers-reduced-motion",
)  # fmt: skip
PERSON = {
    "DJANGO_SUPERUSER_USERNAME": "ada",
    "DJANGO_SUPERUSER_EMAIL": "",
    "DJANGO_SUPERUSER_PASSWORD": "a long pass phrase",
}
POLICY = 'actor User {}\n\nresource Repo {\n  permissions = ["read"];\n  roles = ["owner"];\n  "read" if "owner";\n}\n'


@dataclass
class Browser:
    driver: webdriver.Chrome
    service: Service
    pictures: Path

    def open(self, path: str) -> None:
        self.driver.get(f"{self.service.origin}{path}")

    def one(self, selector: str) -> WebElement:
        return self.until(lambda driver: driver.find_element(By.CSS_SELECTOR, selector), f"no {selector}")

    def until(self, condition: Callable, otherwise: str) -> object:
        """What the condition gives; while a page is being replaced, elements may be gone."""
        wait = WebDriverWait(self.driver, WITHIN, ignored_exceptions=[WebDriverException])
        return wait.until(condition, otherwise)

    def every(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def click(self, selector: str) -> None:
        self.one(selector).click()

    def follow(self, text: str) -> None:
        self.driver.find_element(By.XPATH, f"//main//a[contains(., '{text}')]").click()

    def write(self, selector: str, text: str) -> None:
        field = self.one(selector)
        field.clear()
        field.send_keys(text)

    def shows(self, text: str) -> None:
        """Wait for a text on the page, and take a picture of it."""
        self.until(lambda driver: text in driver.execute_script("return document.body.innerText"), f"no `{text}`")
        self.picture()

    def picture(self) -> None:
        number = len(list(self.pictures.iterdir()))
        self.driver.save_screenshot(str(self.pictures / f"{number:02}.png"))


@pytest.fixture(scope="module", params=DATABASES)
def service(request, database_urls, tmp_path_factory):
    url, folder = database_urls(request.param, f"browser-{request.param}"), tmp_path_factory.mktemp("browser")
    secret = {"SECRET_KEY": "only for these tests " * 3}
    running = start_service(folder, url, "--dev", "--workers", "1", **secret)
    subprocess.run(
        [sys.executable, ROOT / "manage.py", "createsuperuser", "--noinput"],
        env=os.environ | secret | PERSON | {"DATABASE_URL": url}, cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    yield running
    running.stop()


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    programs = shutil.which("chromium"), shutil.which("chromedriver")
    if not all(programs):
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no chromium, or no chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for option in (*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(option)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(programs[1]))
    yield driver
    driver.quit()


@pytest.fixture
def browser(driver, service, tmp_path):
    driver.delete_all_cookies()
    driver.get_log("browser")
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    browser = Browser(driver, service, pictures)
    yield browser
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.fixture
def person(browser) -> Browser:
    """Logged in."""
    browser.open("/admin/")
    browser.shows("Username:")
    browser.write("#id_username", PERSON["DJANGO_SUPERUSER_USERNAME"])
    browser.write("#id_password", PERSON["DJANGO_SUPERUSER_PASSWORD"])
    browser.click("[type=submit]")
    browser.shows("Facts, policies and keys")
    return browser


def test_a_person_rules_facts_policies_and_keys(person):
    publish_a_policy(person)
    add_a_fact(person)
    browse_and_delete_facts(person)
    ask_and_be_told_why(person)
    see_what_would_change(person)
    take_a_policy_back(person)
    make_and_revoke_a_key(person)


def publish_a_policy(person: Browser) -> None:
    person.follow("Policy versions")
    person.picture()
    person.open("/admin/policy/policyversion/add/")
    person.write("#id_source", POLICY.replace('"read" if', '"raed" if'))
    person.click("[name=_publish]")
    person.shows("raed")
    excerpt = person.one(".policy").text
    assert "6" in [number.text for number in person.every(".numbers b")], excerpt
    person.write("#id_source", POLICY)
    person.click("[name=_check]")
    person.shows("nothing is published yet")
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
    person.follow("next page")
    person.shows("first page")
    person.write("#id_id", "bob")
    person.click("#narrowing [type=submit]")
    person.shows('User{"bob"}')
    assert len(person.every("#facts tbody tr")) == 1
    person.click("[name=selected]")
    person.click("#facts [type=submit]")
    person.shows("1 fact is deleted")
    assert not may(person, "bob") and may(person, "ann")


def ask_and_be_told_why(person: Browser) -> None:
    person.open("/admin/policy/policyversion/")
    person.follow("Version 1")
    person.follow("Ask")
    person.shows("Fill in a question")
    person.write("#id_actor", "User:ann")
    person.write("#id_action", "read")
    person.write("#id_resource", "Repo:acme")
    person.click("#question .submit [type=submit]")
    person.shows("Because")
    assert "Allowed" in person.one(".verdict").text
    person.write("#id_actor", "User:bob")
    person.click("#question .submit [type=submit]")
    person.shows("What stood in the way")
    assert "Denied" in person.one(".verdict").text
    ask_for_lists_and_by_another_text(person)


def ask_for_lists_and_by_another_text(person: Browser) -> None:
    person.write("#id_actor", "User:ann")
    person.click("[name=kind][value=actions]")
    assert not person.one("#id_action").is_enabled()
    person.click("#question .submit [type=submit]")
    person.shows("1 answer")
    person.click("[name=kind][value=list]")
    person.write("#id_action", "read")
    person.write("#id_resource", "Repo")
    person.click("#question .submit [type=submit]")
    person.shows("repo-119")
    person.follow("why?")
    person.shows("Because")
    assert "Allowed" in person.one(".verdict").text
    person.one("#id_text").find_element(By.XPATH, "./ancestor::details/summary").click()
    person.click("#fill")
    assert person.one("#id_text").get_attribute("value") == POLICY
    person.write("#id_text", POLICY.replace('"read" if', '"raed" if'))
    person.click("#question .submit [type=submit]")
    person.shows("the text is not a policy")
    assert "raed" in person.one(".excerpts .line.meant").text


def see_what_would_change(person: Browser) -> None:
    person.open("/admin/policy/policyversion/")
    person.follow("Version 1")
    person.follow("Picture")
    person.shows("owner")
    assert person.every("svg")
    person.driver.back()
    person.follow("What would change")
    person.write("#id_text", POLICY.replace('"owner"', '"keeper"'))
    person.click(".submit [type=submit]")
    person.shows("would be different")
    assert "would be denied" in person.one("#content-main").text


def take_a_policy_back(person: Browser) -> None:
    person.open("/admin/policy/policyversion/add/")
    person.write("#id_source", POLICY.replace('"owner"', '"keeper"'))
    person.click("[name=_publish]")
    person.shows("version 2 is active")
    assert not may(person, "ann")
    person.follow("Compare")
    person.shows("keeper")
    person.open("/admin/policy/policyversion/")
    person.shows("Version 2")
    person.follow("Version 1")
    person.follow("Make active")
    person.shows("What changes")
    person.click("[type=submit].default")
    person.shows("version 1 is active")
    assert may(person, "ann")


def make_and_revoke_a_key(person: Browser) -> None:
    person.open("/admin/authz_project/apikey/add/")
    Select(person.one("#id_environment")).select_by_visible_text("default")
    person.write("#id_label", "made by hand")
    person.click("[name=_save]")
    person.shows("shown only now")
    made = Client(person.service.origin, person.one("#token").text)
    assert made.get("/facts").status_code == 200
    person.follow("All keys")
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
    browser.shows("May the actor do the action on the resource?")
    browser.write("#key", DEV_KEY)
    article = browser.one("#get-api-stats")
    article.find_element(By.CSS_SELECTOR, "summary").click()
    browser.driver.execute_script("arguments[0].scrollIntoView()", article)
    article.find_element(By.CSS_SELECTOR, "button").click()
    browser.shows('"num_facts"')
    assert "200" in article.find_element(By.CSS_SELECTOR, "output").text
