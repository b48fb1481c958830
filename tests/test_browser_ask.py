"""The page of questions in a real browser: by addresses that can be kept, back and forth, and without a mouse."""

import re

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browsing import Browser, browser, driver, manage, person, service_for_people
from tests.checks.conftest import POLICY, fact
from tests.conftest import DATABASES

__all__ = ["browser", "driver", "person"]  # fixtures
pytestmark = [pytest.mark.long, pytest.mark.one_database]

ROBOTS = "actor Robot {}\n"


@pytest.fixture(scope="module", params=DATABASES)
def service(request, migrated_urls, tmp_path_factory):
    url, folder = migrated_urls(request.param, f"browser-ask-{request.param}"), tmp_path_factory.mktemp("browser-ask")
    running = service_for_people(folder, url)
    manage(folder, url, "load_policy", "-", given=ROBOTS + POLICY)
    client = running.client()
    client.post(
        "/batch", [{"inserts": [fact("has_role", "User:ann", "reader", "Repo:a"), fact("is_public", "Repo:p")]}]
    )
    roles = [fact("has_role", f"User:u{number:03}", "writer", "Repo:big") for number in range(250)]
    repos = [fact("has_role", "User:eve", "reader", f"Repo:r{number:03}") for number in range(250)]
    client.post("/batch", [{"inserts": [*roles, *repos, fact("has_role", "Robot:r2", "reader", "Repo:big")]}])
    yield running
    running.stop()


@pytest.fixture(params=[1440, 390], ids=["wide", "narrow"])
def wide(request, person) -> Browser:
    """Logged in, on a desk and on a phone."""
    person.driver.set_window_size(request.param, 960)
    return person


def test_questions_are_addresses(wide):
    wide.open("/admin/go/ask/?environment=default&kind=authorize&actor=User:ann&action=read&resource=Repo:a&at=")
    wide.shows("Allowed")
    assert wide.driver.current_url.endswith("?kind=authorize&actor=User:ann&action=read&resource=Repo:a")
    wide.write("#id_actor", "User:bob")
    wide.one("#id_actor").send_keys(Keys.ENTER)
    wide.shows("Denied")
    assert wide.driver.current_url.endswith("?kind=authorize&actor=User:bob&action=read&resource=Repo:a")
    wide.shows("No stored facts mention User:bob.")
    wide.driver.back()
    wide.shows("Allowed")
    wide.driver.refresh()
    wide.shows("Allowed")
    nothing_is_cut_off(wide)


def test_who_may_is_walked_through(wide):
    wide.open("/admin/go/ask/?kind=authorize&actor=User:ann&action=read&resource=Repo:big")
    wide.click("[data-kind=who]")
    wide.shows("251 actors")
    assert wide.driver.current_url.endswith("?kind=who&action=read&resource=Repo:big")
    assert [each.text for each in wide.every(".answers code")][:2] == ["Robot:r2", "User:u000"]
    wide.click(".pages [rel=next]")
    wide.shows("101 to 200 of 251")
    wide.click(".pages [rel=next]")
    wide.shows("201 to 251 of 251")
    wide.click(".pages [rel=prev]")
    wide.shows("101 to 200 of 251")
    wide.write("#id_filter", "u24")
    wide.one("#id_filter").send_keys(Keys.ENTER)
    wide.shows("10 actors")
    nothing_is_cut_off(wide)
    wide.driver.find_element(By.LINK_TEXT, "Explain").click()
    wide.shows("Why it was allowed")
    wide.open("/admin/go/ask/?kind=who&action=read&resource=Repo:p")
    wide.shows("Every Robot and Every User")


def test_what_changed_is_picked_and_explained(wide):
    wide.open("/admin/go/ask/?kind=list&actor=User:eve&action=read&resource=Repo")
    wide.click("[data-kind=review]")
    wide.shows("Choose a start time or revision")
    wide.driver.find_element(By.LINK_TEXT, "before the last change").click()
    wide.shows("gained, 0 lost")
    least, found = re.search(r"(At least )?(\d+) gained, 0 lost", wide.one("body").text).groups()
    assert found == "250" or (least and 100 <= int(found) <= 250)  # a busy machine has no time to look for more
    wide.shows("1 to 100")
    nothing_is_cut_off(wide)
    wide.driver.find_element(By.LINK_TEXT, "before").click()
    wide.shows("Denied")
    wide.shows("As of revision")


def test_a_wrong_name_is_put_right_by_a_click(wide):
    wide.open("/admin/go/ask/?kind=authorize&actor=User:ann&action=reed&resource=Repo:a")
    wide.shows("Did you mean")
    wide.driver.find_element(By.LINK_TEXT, "read").click()
    wide.shows("Allowed")


def test_another_text_is_asked_with_pages(wide):
    wide.open("/admin/go/ask/?kind=list&actor=User:eve&action=read&resource=Repo")
    wide.shows("251 resources")
    wide.one("#id_text").find_element(By.XPATH, "./ancestor::details/summary").click()
    wide.write("#id_text", POLICY.replace('"read" if is_public(resource);', ""))
    wide.click("#tried [type=submit]")
    wide.shows("250 resources")
    wide.click(".pages button[formaction*=after]")
    wide.shows("101 to 200 of 250")
    wide.click(".answers button")
    wide.shows("Why it was allowed")
    assert "(not published)" in wide.one(".took").text


def test_completion_goes_on_from_what_is_written(wide):
    wide.open("/admin/go/ask/")
    wide.write("#id_actor", "User:u24")
    values = "return [...document.querySelectorAll('#actors option')].map((each) => each.value)"
    wide.until(lambda driver: "User:u249" in driver.execute_script(values), "no completion")
    wide.click("[data-kind=who]")
    assert wide.one("#id_actor").get_attribute("list") == "actor-types"
    offered = wide.driver.execute_script(values.replace("#actors", "#actor-types"))
    assert offered == ["Robot", "User"]


def nothing_is_cut_off(wide: Browser) -> None:
    script = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert wide.driver.execute_script(script) <= 0
