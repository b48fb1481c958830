"""Every page over many facts, wide and on a phone, light and dark: whole, quick, and for everybody to use."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from math import inf
from pathlib import Path
from time import monotonic

import psutil
import pytest
import requests

from tests.benchmarks.checkouts import used
from tests.benchmarks.generate import POLICY, Size, facts_of, line_of
from tests.browsing import Browser, browser, driver, manage, person, service_for_people
from tests.conftest import DATABASES

__all__ = ["browser", "driver", "person"]  # fixtures
pytestmark = pytest.mark.long

FACTS = 200_000
QUICK = 300  # milliseconds of a processor, by the server and its database
WAITS = 10  # times that: so long may a page take beside other tests
TRIES = 12  # beside other tests: what else runs makes a page slower at times, and never faster
AXE = "4.14.1"
OF_COLOURS = ("color-contrast", "link-in-text-block")
DARK_PHONES = 6  # one page of so many
WIDE, PHONE = (1440, 900), (390, 844)
POLICY_WITH_TESTS = (
    POLICY
    + """
test "an admin writes" {
  setup { has_role(User{"ann"}, "admin", Project{"anvil"}); }
  assert allow(User{"ann"}, "write", Project{"anvil"});
}
"""
)
VERSIONS = "/admin/policy/policyversion/"
VALUE = "/admin/facts/value/?environment=default"
ANN_READS = "kind=authorize&actor=User:user-0&action=read&resource=Repo:repo-1"
PAGES = {
    "home": "/admin/",
    "policy": "/admin/go/policy/",
    "versions": "/admin/go/versions/",
    "difference": f"{VERSIONS}2/difference/",
    "activate": f"{VERSIONS}1/activate/",
    "editor": "/admin/go/editor/",
    "facts": "/admin/go/facts/",
    "facts-found": "/admin/facts/signature/?type=User&id=boss",
    "facts-of-a-kind": "/admin/facts/signature/?predicate=has_role",
    "facts-beginning": "/admin/facts/signature/?id=repo-1&match=begins",
    "facts-not-found": "/admin/facts/signature/?id=repo-nobody",
    "fact-new": "/admin/facts/signature/add/",
    "facts-import": "/admin/facts/signature/import/",
    "value": f"{VALUE}&type=User&id=boss",
    "value-name": f"{VALUE}&type=String&id=organization",
    "value-resource": f"{VALUE}&type=Repo&id=repo-1",
    "value-history": "/admin/facts/value/history/?environment=default&type=User&id=boss",
    "ask": "/admin/go/ask/",
    "ask-decision": f"/admin/go/ask/?{ANN_READS}",
    "ask-actions": "/admin/go/ask/?kind=actions&actor=User:boss&resource=Repo:repo-1",
    "ask-list": "/admin/go/ask/?kind=list&actor=User:boss&action=read&resource=Repo",
    "ask-who": "/admin/go/ask/?kind=who&actor=User&action=read&resource=Repo:repo-1",
    "ask-changed": f"{VERSIONS}2/review/?actor_type=User:boss&start=1",
    "ask-unknown": "/admin/go/ask/?kind=authorize&actor=User:boss&action=reed&resource=Repo:repo-1",
    "picture": "/admin/go/picture/",
    "picture-leading": "/admin/go/picture/?leads_to=Doc.read",
    "preview": "/admin/go/preview/",
    "review": f"{VERSIONS}2/review/",
    "review-gained": f"{VERSIONS}2/review/?start=1",
    "review-had": f"{VERSIONS}2/review/?at=3",
    "review-of-one": f"{VERSIONS}2/review/?at=3&actor_type=User:boss",
    "review-of-nothing": f"{VERSIONS}2/review/?at=3&filter=nothing-has-this",
    "history": "/admin/go/history/",
    "revision": "/admin/facts/signature/revision/1/2/",
    "keys": "/admin/go/keys/",
    "key": "/admin/authz_project/apikey/1/change/",
    "key-new": "/admin/authz_project/apikey/add/",
    "environments": "/admin/policy/environment/",
    "people": "/admin/auth/user/",
    "password": "/admin/password_change/",
    "interface": "/api/docs",
    "documents": "/docs/",
    "document": "/docs/interface/",
    "documents-found": "/docs/?q=role",
}


WITH_PAGES = ("/admin/facts/signature/", "/admin/facts/signature/?id=repo&match=begins", PAGES["value-name"])


@pytest.fixture(scope="module")
def axe(tmp_path_factory) -> str:
    """Return the text of axe-core, as it is published."""
    folder = tmp_path_factory.mktemp("axe")
    if not shutil.which("npm"):
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no npm")
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-save", f"axe-core@{AXE}"]
    subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture(scope="module", params=DATABASES)
def service(request, migrated_urls, tmp_path_factory):
    url, folder = migrated_urls(request.param, f"pages-{request.param}"), tmp_path_factory.mktemp("pages")
    running = service_for_people(folder, url)
    facts = folder / "facts.jsonl"
    facts.write_bytes(b"\n".join(line_of(fact) for fact in facts_of(Size(FACTS))) + b"\n")
    manage(folder, url, "load_policy", "-", given=POLICY)
    manage(folder, url, "load_facts", str(facts))
    manage(folder, url, "load_policy", "-", given=POLICY_WITH_TESTS)
    yield running
    running.stop()


@pytest.fixture
def servers(request, service) -> list[psutil.Process]:
    """Those that take time for an answer: the service, and PostgreSQL where it is asked."""
    running = [service.process]
    if request.node.callspec.params["service"] == "postgresql":
        running.append(request.getfixturevalue("postgresql_server").process)
    return [psutil.Process(process.pid) for process in running]


@pytest.mark.one_database
def test_pages_are_whole_and_for_everybody(person, axe):
    """At both widths, light and dark, nothing hangs over the edge, and axe-core finds nothing against.

    Colours do not depend on the width: in the dark, what only a phone shows is looked at on some of the pages.
    """
    wrong = []
    person.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})  # for axe, which comes into the page
    for number, (name, address) in enumerate(PAGES.items()):
        person.open(address)
        for size in (WIDE, PHONE):
            for scheme in ("light", "dark"):
                if (size, scheme) == (PHONE, "dark") and number % DARK_PHONES:
                    continue
                look(person, size, scheme)
                here = f"{name} {size[0]} {scheme}"
                rules = OF_COLOURS if scheme == "dark" else ()  # nothing else is different then
                wrong += [f"{here}: {what}" for what in (*overhanging(person), *violations(person, axe, rules))]
                picture(person, here)
    person.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": False})
    assert not wrong, "\n".join(wrong)


def test_pages_are_quick(person, servers):
    took = {
        name: least_time(servers, lambda address=address: asked_as(person, address)) for name, address in PAGES.items()
    }
    assert {name: time for name, time in took.items() if time > QUICK} == {}


@pytest.mark.parametrize("address", WITH_PAGES)
def test_pages_of_facts_are_turned_quickly(person, servers, address):
    person.open(address)
    for way in ("next", "next", "next", "prev", "prev"):
        turned = person.one(f"[rel={way}]").get_attribute("href").removeprefix(person.service.origin)
        assert least_time(servers, lambda turned=turned: person.open(turned)) <= QUICK, (way, turned)


def test_all_facts_are_exported(person):
    """By the server, out of a file that is written before: as many as there are, and none of them in its memory."""
    with asked_as(person, "/admin/facts/signature/export/?format=json", stream=True) as answer:
        lines = sum(1 for _ in answer.iter_lines(chunk_size=1 << 16))
    stored = len({line_of(each) for each in facts_of(Size(FACTS))})
    assert (answer.status_code, lines) == (200, stored) and answer.headers["Content-Length"]


def test_ids_are_completed_quickly(person, servers):
    for start in ("", "repo", "repo-1", "nothing"):

        def completed(start: str = start) -> None:
            answer = asked_as(person, f"/admin/facts/signature/ids/?id={start}")
            assert bool(answer.json()["ids"]) is (start != "nothing")

        assert least_time(servers, completed) <= QUICK


def asked_as(person: Browser, address: str, stream: bool = False) -> requests.Response:
    """Ask as whoever is logged in, but not in the browser."""
    cookies = {each["name"]: each["value"] for each in person.driver.get_cookies()}
    return requests.get(f"{person.service.origin}{address}", cookies=cookies, stream=stream, timeout=60)


@pytest.mark.one_database
def test_whatever_can_be_clicked_takes_the_focus(person):
    look(person, WIDE, "light")
    missed = {}
    for name, address in PAGES.items():
        person.open(address)
        if left := without_focus(person):
            missed[name] = left
    assert missed == {}


def look(person: Browser, size: tuple[int, int], scheme: str) -> None:
    width, height = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    person.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    person.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)


def overhanging(person: Browser) -> Iterator[str]:
    wide, shown = person.driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    if wide > shown:
        yield f"{wide - shown} pixels hang over the edge"


RUN_AXE = """
    const [rules, done] = arguments;
    const asked = {resultTypes: ["violations"], ...(rules.length && {runOnly: {type: "rule", values: rules}})};
    axe.run(asked).then((found) => done(found.violations), (error) => done(String(error)));
"""


def violations(person: Browser, axe: str, rules: Sequence[str] = ()) -> Iterator[str]:
    """Say what these rules find against the page, or all that are usual."""
    if not person.driver.execute_script("return Boolean(window.axe)"):
        person.driver.execute_script(axe)
    found = person.driver.execute_async_script(RUN_AXE, rules)
    assert isinstance(found, list), found
    for each in found:
        nodes = [f"{node['target']} {' '.join(node['html'].split())[:120]}" for node in each["nodes"][:3]]
        yield f"{each['id']}: {each['help']}: {'; '.join(nodes)}"


def picture(person: Browser, name: str) -> None:
    folder = os.environ.get("PICTURES")
    if folder:
        Path(folder).mkdir(exist_ok=True)
        person.driver.execute_script("scrollTo(0, 0)")
        person.driver.save_screenshot(str(Path(folder) / f"{name.replace(' ', '-')}.png"))


def least_time(servers: Sequence[psutil.Process], ask: Callable[[], object]) -> float:
    """Return the milliseconds of a processor that an answer takes, in the best of some tries, or a part of the wait.

    No try is made once there was a quick one.
    """
    best = inf
    for _ in range(TRIES):
        started, before = monotonic(), used(*servers)
        ask()
        best = min(best, max(used(*servers) - before, (monotonic() - started) / WAITS) * 1000)
        if best <= QUICK:
            break
    return best


CLICKABLE = "a[href], button, input:not([type=hidden]), select, textarea, summary"
WITHOUT_FOCUS = """
    const isShown = (one) => one.checkVisibility({visibilityProperty: true}) && !one.closest("[inert]");
    const all = [...document.querySelectorAll(arguments[0])].filter((one) => isShown(one) && !one.disabled);
    return all.filter((one) => one.tabIndex < 0).map((one) => one.outerHTML.slice(0, 160));
"""


def without_focus(person: Browser) -> list[str]:
    """Return what can be clicked but does not take the focus by Tab."""
    return person.driver.execute_script(WITHOUT_FOCUS, CLICKABLE)
