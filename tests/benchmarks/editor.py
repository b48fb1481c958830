"""How long the editor takes in a browser, from a key to the screen and from a mistake to its mark, in a long policy.

    python -m tests.benchmarks.editor [--lines 2000]

starts a service of its own and a browser, and prints the milliseconds.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.benchmarks.checkouts import used
from tests.browsing import OPTIONS, PERSON, service_for_people
from tests.service import Service

KEYS = 50
MISTAKES = 8
_KIND = """# Kind {0} of thing.
resource Kind{0} {{
  roles = ["viewer", "editor", "owner"];
  permissions = ["read", "write", "delete", "share"];
  relations = {{ organization: Org, parent: Kind{1} }};

  "viewer" if "editor";
  "editor" if "owner";
  "owner" if "admin" on "organization";
  "viewer" if "viewer" on "parent";
  "read" if "viewer";
  "write" if "editor";
  "delete" if "owner";
  "share" if "owner" or is_shared(resource);
}}

is_open(x: Kind{0}) if is_public(x) and not is_locked(x);

test "kind {0} is read by its viewers" {{
  setup {{
    has_role(User{{"ann"}}, "viewer", Kind{0}{{"a"}});
  }}
  assert allow(User{{"ann"}}, "read", Kind{0}{{"a"}});
  assert_not allow(User{{"bob"}}, "read", Kind{0}{{"a"}});
}}

"""
_ORG = 'actor User {}\n\nresource Org {\n  roles = ["member", "admin"];\n  "member" if "admin";\n}\n\n'

# From the event of a key to the task after the frame that shows it.
_WATCH_KEYS = """
    window.took = [];
    document.getElementById("policy-text").addEventListener("beforeinput", () => {
        const start = performance.now();
        requestAnimationFrame(() => {
            const {port1, port2} = new MessageChannel();
            port1.onmessage = () => took.push(performance.now() - start);
            port2.postMessage(0);
        });
    }, true);
"""
_WATCH_MARKS = """
    const text = document.getElementById("policy-text");
    window.marked = null;
    text.addEventListener("beforeinput", () => (window.typed = performance.now()), {once: true, capture: true});
    new MutationObserver((_, observer) => {
        if (!document.querySelector(".cm-lintRange-error")) return;
        window.marked = performance.now() - window.typed;
        observer.disconnect();
    }).observe(text, {subtree: true, childList: true, attributes: true});
"""
_GO = """
    const {view, text} = document.getElementById("code").editor;
    const middle = text().indexOf('"read" if "viewer"', text().length / 2) + 1;
    view.focus();
    view.dispatch({selection: {anchor: middle}, scrollIntoView: true});
"""


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds."""

    all: tuple[float, ...]

    @property
    def undisturbed(self) -> float:
        """The least: so long it takes where nothing else is at work on the machine."""
        return min(self.all)

    def __str__(self) -> str:
        ordered = sorted(self.all)
        median, high = statistics.median(ordered), ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
        return f"median {median:.0f}, 95 of 100 below {high:.0f}, at most {ordered[-1]:.0f} ({len(ordered)} times)"


@dataclass(frozen=True, slots=True)
class Measured:
    typing: Times
    marking: Times
    work: Times  # of processors, for each mark: by the browser and the service


def long_policy(lines: int) -> str:
    """A policy of about so many lines, with a test for each type."""
    count = max(1, (lines - _ORG.count("\n")) // _KIND.count("\n"))
    return _ORG + "".join(_KIND.format(number, max(0, number - 1)) for number in range(count))


def measure(driver: webdriver.Chrome, service: Service, mistakes: int = MISTAKES) -> Measured:
    """Type in the middle of the text that the editor shows."""
    processes = [psutil.Process(each.process.pid) for each in (driver.service, service)]
    _until_quiet(driver)
    driver.execute_script(_GO)
    driver.execute_script(_WATCH_KEYS)
    for number in range(KEYS):
        driver.switch_to.active_element.send_keys("abcdefghij"[number % 10])
        time.sleep(0.08)
    typing = driver.execute_script("return took")
    driver.switch_to.active_element.send_keys(*[Keys.BACKSPACE] * KEYS)
    marking, work = zip(*[_marked(driver, processes) for _ in range(mistakes)], strict=True)
    return Measured(Times(tuple(typing)), Times(marking), Times(work))


def _marked(driver: webdriver.Chrome, processes: list[psutil.Process]) -> tuple[float, float]:
    _until_quiet(driver)
    driver.execute_script(_WATCH_MARKS)
    before = used(*processes)
    driver.switch_to.active_element.send_keys("x")
    took = WebDriverWait(driver, 20).until(lambda _: driver.execute_script("return window.marked"))
    work = used(*processes) - before
    driver.switch_to.active_element.send_keys(Keys.BACKSPACE)
    return took, work * 1000


def _until_quiet(driver: webdriver.Chrome) -> None:
    """Until the policy is taken, and nothing that follows from that is under way."""
    told = (By.CSS_SELECTOR, "#problems .state")
    WebDriverWait(driver, 20).until(lambda _: "Valid:" in driver.find_element(*told).text)
    time.sleep(2.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lines", type=int, default=2_000)
    lines = parser.parse_args().lines
    with tempfile.TemporaryDirectory() as folder:
        service = service_for_people(Path(folder), f"sqlite:///{folder}/authz.sqlite3")
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for option in (*OPTIONS, f"--user-data-dir={folder}/profile"):
            options.add_argument(option)
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            _log_in(driver, service.origin)
            driver.get(f"{service.origin}/admin/policy/policyversion/add/")
            time.sleep(1)
            text = long_policy(lines)
            driver.execute_script("document.getElementById('code').editor.write(arguments[0])", text)
            found = measure(driver, service)
        finally:
            driver.quit()
            service.stop()
    print(f"{text.count(chr(10)):,} lines, {len(text):,} characters; milliseconds")
    print(f"from a key to the screen: {found.typing}")
    print(f"from a mistake to its mark: {found.marking}")
    print(f"of processors for each mark: {found.work}")


def _log_in(driver: webdriver.Chrome, origin: str) -> None:
    driver.get(f"{origin}/admin/login/")
    driver.find_element(By.ID, "id_username").send_keys(PERSON["DJANGO_SUPERUSER_USERNAME"])
    driver.find_element(By.ID, "id_password").send_keys(PERSON["DJANGO_SUPERUSER_PASSWORD"])
    driver.find_element(By.CSS_SELECTOR, "[type=submit]").click()
    time.sleep(1)


if __name__ == "__main__":
    main()
