"""A real browser, and what a person does in it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException, WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.service import ROOT, Service, start_service

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
SECRET = {"SECRET_KEY": "only for these tests " * 3}

PASTE = """
    const clipboardData = new DataTransfer();
    clipboardData.setData("text/plain", arguments[0]);
    const event = new ClipboardEvent("paste", {clipboardData, bubbles: true, cancelable: true});
    document.getElementById("policy-text").dispatchEvent(event);
"""


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
        try:
            return wait.until(condition, otherwise)
        except TimeoutException:
            self.picture()
            there_is = self.driver.find_element(By.TAG_NAME, "body").text
            raise TimeoutException(f"{otherwise}; the page reads: {there_is[:5000]}") from None

    def every(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def click(self, selector: str) -> None:
        """Click an element; the one in its place if the page replaces it meanwhile, as then nothing was clicked."""
        try:
            self.one(selector).click()
        except StaleElementReferenceException:
            self.one(selector).click()

    def follow(self, text: str) -> None:
        self.driver.find_element(By.XPATH, f"//main//a[contains(., '{text}')]").click()

    def write(self, selector: str, text: str) -> None:
        field = self.one(selector)
        field.clear()
        field.send_keys(text)

    def write_policy(self, text: str) -> None:
        """Write over what is in the editor, as one who pastes it."""
        self.until(lambda _: self.written_policy() is not None, "no editor")
        self.one("#policy-text").send_keys(Keys.CONTROL + "a")
        self.driver.execute_script(PASTE, text)

    def written_policy(self) -> str:
        return self.driver.execute_script("return document.getElementById('code').editor.text()")

    def shows(self, text: str) -> None:
        """Wait for a text on the page."""
        self.until(lambda driver: text in driver.execute_script("return document.body.innerText"), f"no `{text}`")
        if os.environ.get("PICTURES"):
            self.picture()

    def picture(self) -> None:
        """Keep what is seen: where something does not come, and, with the variable `PICTURES`, wherever we looked."""
        number = len(list(self.pictures.iterdir()))
        self.driver.save_screenshot(str(self.pictures / f"{number:02}.png"))


def service_for_people(folder: Path, url: str) -> Service:
    """Start a service where a person can log in."""
    running = start_service(folder, url, "--dev", "--workers", "1", **SECRET)
    manage(folder, url, "createsuperuser", "--noinput")
    return running


def manage(folder: Path, url: str, *arguments: str, given: str | None = None) -> str:
    """Run a command on the service's database, and return what it prints."""
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    variables = os.environ | SECRET | PERSON | {"DATABASE_URL": url}
    done = subprocess.run(command, env=variables, cwd=folder, check=True, capture_output=True, text=True, input=given)
    return done.stdout


@contextmanager
def a_driver(profile: Path) -> Iterator[webdriver.Chrome]:
    """A browser that remembers nothing but what is in the folder."""
    programs = shutil.which("chromium"), shutil.which("chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for option in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(programs[1]))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no chromium, or no chromedriver")
    with a_driver(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def browser(driver, service, tmp_path):
    driver.get("about:blank")  # pages that ask by themselves would do so without a login
    driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    driver.get_log("browser")
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    browser = Browser(driver, service, pictures)
    yield browser
    severe = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert not severe, "\n".join(severe)


_sessions: dict[str, list[dict]] = {}  # the cookies of who is logged in at a service: a login takes a second


@pytest.fixture
def person(browser) -> Browser:
    """Logged in, by the form where no earlier test left a session that goes on."""
    origin = browser.service.origin
    for cookie in _sessions.get(origin, []):
        values = {name: cookie[name] for name in ("name", "value", "path", "httpOnly", "sameSite") if name in cookie}
        browser.driver.execute_cdp_cmd("Network.setCookie", {"url": origin, **values})
    browser.open("/admin/")
    if browser.every("#id_username"):
        browser.write("#id_username", PERSON["DJANGO_SUPERUSER_USERNAME"])
        browser.write("#id_password", PERSON["DJANGO_SUPERUSER_PASSWORD"])
        browser.click("[type=submit]")
    browser.shows("Health")
    _sessions[origin] = browser.driver.get_cookies()
    return browser
