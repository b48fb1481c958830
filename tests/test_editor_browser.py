"""The editor of policies, used in a real browser: what it marks, completes, runs, keeps and tells, and how fast."""

from __future__ import annotations

import re
from html import unescape

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from policy.language.format import formatted
from policy.pages.highlight import highlighted_lines
from tests.benchmarks.editor import long_policy, measure
from tests.browsing import Browser, browser, driver, person, service_for_people
from tests.conftest import DATABASES
from tests.service import ROOT

__all__ = ["browser", "driver", "person"]  # fixtures
pytestmark = [pytest.mark.long, pytest.mark.one_database]

EDITOR = "/admin/policy/policyversion/add/"
POLICY = """actor User {}

resource Repo {
  roles = ["owner"];
  permissions = ["read", "write"];
  "read" if "owner";
}

test "owners read" {
  setup { has_role(User{"ann"}, "owner", Repo{"acme"}); }
  assert allow(User{"ann"}, "read", Repo{"acme"});
}

test "owners write" {
  setup { has_role(User{"ann"}, "owner", Repo{"acme"}); }
  assert allow(User{"ann"}, "write", Repo{"acme"});
}
"""
RIGHT = POLICY.replace('"read" if "owner";', '"read" if "owner";\n  "write" if "owner";')
TYPING_TAKES, MARKING_TAKES = 50, 500  # milliseconds
WAITS = 10  # times that: so long may a mark take beside other tests
TRIES = 3


@pytest.fixture(scope="module", params=DATABASES)
def service(request, migrated_urls, tmp_path_factory):
    url, folder = migrated_urls(request.param, f"editor-{request.param}"), tmp_path_factory.mktemp("editor")
    running = service_for_people(folder, url)
    yield running
    running.stop()


@pytest.fixture
def writer(person) -> Browser:
    """With the editor open and nothing in it, nor kept."""
    person.open(EDITOR)
    person.driver.execute_script("localStorage.clear(); sessionStorage.clear()")
    person.service.client().post("/policy", {"src": ""})
    if discards := person.every("#drafted button"):
        discards[0].click()
    person.open(EDITOR)
    return person


def put(writer: Browser, text: str, place: str | None = None) -> None:
    """Write the text, and put the cursor before a part of it."""
    writer.write_policy(text)
    if place is not None:
        at = "const {view, text} = document.getElementById('code').editor; view.focus();"
        at += "view.dispatch({selection: {anchor: text().indexOf(arguments[0])}, scrollIntoView: true})"
        writer.driver.execute_script(at, place)


def keys(writer: Browser, *pressed: str) -> None:
    writer.driver.switch_to.active_element.send_keys(*pressed)


def reads(writer: Browser, selector: str, text: str) -> None:
    """Wait until what is there reads so."""
    writer.until(lambda driver: text in driver.find_element(By.CSS_SELECTOR, selector).text, f"no `{text}`")


def selected(writer: Browser) -> str:
    script = "const {state} = document.getElementById('code').editor.view; const {from, to} = state.selection.main;"
    return writer.driver.execute_script(f"{script} return state.sliceDoc(from, to)")


def test_problems_are_marked_and_lead_to_their_places(writer):
    put(writer, POLICY.replace('"read" if', '"raed" if').replace("actor", "# \U0001f600\U0001f600\nactor"))
    reads(writer, "#problems", "raed is not declared")
    assert [mark.text for mark in writer.every(".cm-lintRange-error")] == ['"raed"']
    reads(writer, "#problems", "line 7, column 3")
    writer.click("#problems li .place")
    assert selected(writer) == '"raed"'
    put(writer, POLICY)
    reads(writer, "#problems", "Valid: 2 types, 1 rule, 2 tests.")
    assert writer.every(".cm-lintRange-error") == []


def test_a_problem_keeps_the_focus_while_the_others_come_and_go(writer):
    wrong = POLICY.replace('"read" if', '"raed" if').replace('"write", Repo', '"wriet", Rpo')
    put(writer, wrong)
    reads(writer, "#problems", "raed is not declared")
    reads(writer, "#problems", "Rpo")
    focused = "return document.activeElement.closest('li')?.textContent ?? document.activeElement.id"
    last = "const last = [...document.querySelectorAll('#problems .place')].at(-1); last.focus();"
    line = writer.driver.execute_script(f"{last} return last.parentElement")
    change = "const {view} = document.getElementById('code').editor; view.dispatch({changes: arguments[0]})"
    start = wrong.index("raed")
    writer.driver.execute_script(change, [{"from": start, "to": start + 4, "insert": "read"}])
    writer.until(lambda _: "raed" not in writer.one("#problems").text, "the problem stays")
    assert writer.driver.execute_script("return document.activeElement.parentElement") == line
    writer.driver.execute_script(change, [{"from": 0, "to": len(wrong), "insert": RIGHT}])
    reads(writer, "#problems", "Valid:")
    assert writer.driver.execute_script(focused) == "policy-text"


def test_words_are_completed(writer):
    put(writer, POLICY, '"read" if')
    keys(writer, '"wr')
    reads(writer, ".cm-tooltip-autocomplete", "permission of Repo")
    keys(writer, Keys.ENTER, ' if "')
    reads(writer, ".cm-tooltip-autocomplete", "role of Repo")
    keys(writer, "own", Keys.ENTER, ";", Keys.ENTER)
    assert '"write" if "owner";\n' in writer.written_policy()
    reads(writer, "#problems", "Valid:")


def test_tests_are_run_beside_the_text(writer):
    put(writer, POLICY)
    reads(writer, "#pane-tests", "1 of 2 tests failed.")
    reads(writer, "#pane-tests li.fails", "expected true, got false")
    reads(writer, "#tab-tests", "1 of 2 failed")
    writer.click("#pane-tests li.fails ul .place")
    assert selected(writer).startswith('assert allow(User{"ann"}, "write"')
    reads(writer, "#problems li.failure", "line 16, column 3")
    keys(writer, Keys.CONTROL + Keys.HOME)
    keys(writer, "and no policy;", Keys.ENTER, Keys.ENTER)
    writer.until(lambda _: writer.written_policy() == f"and no policy;\n\n{POLICY}", writer.written_policy()[:60])
    writer.click("#pane-tests li ul .place")  # before the list shows results of the new text
    assert selected(writer).startswith('assert allow(User{"ann"}, "write"')
    reads(writer, "#problems li.failure", "line 18, column 3")
    writer.click("#pane-tests li ul .place")
    assert selected(writer).startswith('assert allow(User{"ann"}, "write"')
    put(writer, RIGHT)
    reads(writer, "#pane-tests", "All 2 tests passed.")


def test_one_test_is_run_by_its_button_and_by_keys(writer):
    put(writer, POLICY, 'test "owners write"')
    reads(writer, "#pane-tests", "1 of 2 tests failed.")
    keys(writer, " ")  # what was found is of an earlier text now
    buttons = writer.every("#code .cm-tests [data-name]")
    assert [each.get_attribute("data-name") for each in buttons if each.is_displayed()] == [
        "owners read",
        "owners write",
    ]
    writer.click('#code .cm-tests [data-name="owners write"]')
    reads(writer, "#code .cm-content", "1 of 1 assertion failed")
    reads(writer, "#code .cm-content", "expected true, got false")
    put(writer, RIGHT, 'assert allow(User{"ann"}, "write"')
    keys(writer, Keys.CONTROL + Keys.ENTER)
    reads(writer, "#code .cm-content", "1 assertion holds")


def test_the_text_is_laid_out_and_the_cursor_stays_at_its_word(writer):
    put(writer, POLICY.replace("  roles", "       roles").replace("{}", "{ }"), '"read" if')
    keys(writer, Keys.SHIFT + Keys.ALT + "f")
    writer.until(lambda _: writer.written_policy() == formatted(POLICY), "not laid out")
    keys(writer, "#")
    assert '#"read" if' in re.sub(r"#\s+", "#", writer.written_policy())
    put(writer, "resource {")
    writer.click("#format")
    reads(writer, "#saved", "Not formatted")
    assert writer.written_policy() == "resource {"


def test_what_would_change_and_the_picture_follow_the_text(writer):
    writer.service.client().post("/policy", {"src": RIGHT})
    facts = [{"predicate": "has_role", "args": [{"type": "User", "id": "ann"}, {"type": "String", "id": "owner"},
                                                {"type": "Repo", "id": "acme"}]}]  # fmt: skip
    writer.service.client().post("/batch", [{"inserts": facts}])
    writer.open(EDITOR)
    put(writer, POLICY)
    writer.click("#tab-change")
    reads(writer, "#pane-change", "newly denied")
    writer.click("#tab-picture")
    reads(writer, "#pane-picture", "Repo")
    put(writer, POLICY.replace("Repo", "Barn"))
    reads(writer, "#pane-picture", "Barn")
    put(writer, "resource {")
    reads(writer, "#pane-picture", "These results are for the last valid text")
    writer.one("#tab-picture").send_keys(Keys.ARROW_LEFT)
    assert writer.one("#pane-change").is_displayed() and not writer.one("#pane-picture").is_displayed()


def test_what_has_no_effect_is_listed_and_leads_to_its_place(writer):
    put(writer, POLICY.replace("permissions = [", 'permissions = ["fly", '))
    writer.click("#tab-analysis")
    reads(writer, "#pane-analysis", "nobody can have")
    writer.click("#pane-analysis .place")
    assert selected(writer) == '"fly"'


def test_a_draft_is_found_again(writer):
    put(writer, POLICY)
    reads(writer, "#saved", "Draft saved")
    writer.open(EDITOR)
    reads(writer, "#drafted", "Draft saved")
    assert writer.written_policy() == POLICY
    put(writer, POLICY + "# saved again by this page\n")
    reads(writer, "#saved", "Draft saved")
    writer.click("#drafted button")
    writer.shows("Draft discarded")
    assert writer.written_policy() == ""


def test_a_page_does_not_go_on_as_somebody_else(writer):
    put(writer, POLICY)
    reads(writer, "#saved", "Draft saved")
    of_another = "const form = document.forms.editor; form.dataset.person = form.elements.person.value = '0'"
    writer.driver.execute_script(of_another)
    put(writer, POLICY + "# mine\n")
    reads(writer, "#saved", "Another user is logged in now. Your draft is saved in this browser.")
    writer.click("[name=_publish]")
    writer.shows("Check the user name")
    assert writer.written_policy() == POLICY + "# mine\n"
    assert all("403" in entry["message"] for entry in writer.driver.get_log("browser"))


def test_the_text_outlives_a_lost_connection_and_a_session_that_ended(writer):
    put(writer, POLICY)
    reads(writer, "#saved", "Draft saved")
    session = writer.driver.get_cookie("sessionid")
    writer.driver.delete_cookie("sessionid")
    put(writer, POLICY + "# written without a login\n")
    reads(writer, "#saved", "You are logged out. Your draft is saved in this browser.")
    writer.open(EDITOR)
    writer.driver.add_cookie({"name": "sessionid", "value": session["value"]})
    writer.open(EDITOR)
    reads(writer, "#kept", "from this browser")
    assert writer.written_policy().endswith("# written without a login\n")
    reads(writer, "#saved", "Draft saved")
    offline(writer, True)
    put(writer, POLICY + "# written without a connection\n")
    reads(writer, "#saved", "No connection. Your draft is saved in this browser.")
    offline(writer, False)
    reads(writer, "#saved", "Draft saved")
    writer.driver.get_log("browser")  # which tells of what could not be reached


def offline(writer: Browser, is_so: bool) -> None:
    writer.driver.execute_cdp_cmd("Network.enable", {})
    conditions = {"offline": is_so, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    writer.driver.execute_cdp_cmd("Network.emulateNetworkConditions", conditions)


def test_two_windows_do_not_write_over_each_other(writer):
    first = writer.driver.current_window_handle
    writer.driver.switch_to.new_window("tab")
    second = writer.driver.current_window_handle
    writer.open(EDITOR)
    put(writer, POLICY)
    reads(writer, "#saved", "Draft saved")
    writer.driver.switch_to.window(first)
    put(writer, RIGHT)
    reads(writer, "#kept", "You have a newer draft")
    assert writer.written_policy() == RIGHT
    writer.driver.find_element(By.XPATH, "//button[. = 'Keep this draft instead']").click()
    reads(writer, "#saved", "Draft saved")
    writer.driver.switch_to.window(second)
    put(writer, POLICY + "# second\n")
    reads(writer, "#kept", "You have a newer draft")
    writer.driver.find_element(By.XPATH, "//button[. = 'Open the newer draft']").click()
    writer.until(lambda _: writer.written_policy() == RIGHT, "not shown")
    writer.driver.close()
    writer.driver.switch_to.window(first)


def test_what_a_browser_kept_is_not_written_over_a_newer_draft(writer):
    kept = saved(writer, POLICY + "# here\n")
    saved(writer, RIGHT)  # as if on another machine
    writer.open("/docs/")
    writer.driver.execute_script("localStorage.setItem(...arguments[0])", kept)
    writer.open(EDITOR)
    reads(writer, "#kept", "You have a newer draft")
    assert writer.written_policy() == POLICY + "# here\n"
    writer.driver.find_element(By.XPATH, "//button[. = 'Open the newer draft']").click()
    writer.until(lambda _: writer.written_policy() == RIGHT, "not shown")


def saved(writer: Browser, text: str) -> list[str]:
    """Write the text until it is saved as a draft, and return what the browser kept before."""
    entries = 'return Object.entries(localStorage).filter(([key]) => key.startsWith("policy-draft"))'
    put(writer, text)
    (kept,) = writer.until(lambda driver: driver.execute_script(entries), "not kept")
    writer.until(lambda driver: not driver.execute_script(entries), "not saved")
    return kept


def test_who_publishes_second_is_told(writer):
    put(writer, POLICY)
    reads(writer, "#saved", "Draft saved")
    writer.service.client().post("/policy", {"src": RIGHT + "# theirs\n"})
    put(writer, POLICY + "# mine\n")
    reads(writer, "#meanwhile", "is active now, but your draft is based on version")
    assert "well-known development key" in writer.one("#meanwhile").text
    writer.click("#meanwhile summary")
    reads(writer, "#meanwhile", "# theirs")
    writer.click("[name=_publish]")
    writer.shows("Publish again to replace it")
    assert writer.written_policy() == POLICY + "# mine\n"
    put(writer, RIGHT + "# mine\n")
    writer.click("[name=_publish]")
    writer.shows("is active;")  # the tests beside the text have passed before
    writer.open(EDITOR)
    assert writer.written_policy() == RIGHT + "# mine\n" and not writer.every("#drafted")


def test_all_of_it_is_done_by_keys(writer):
    put(writer, POLICY.replace('"read" if', '"raed" if'), "actor")
    reads(writer, "#problems", "raed is not declared")
    keys(writer, Keys.F8)
    assert selected(writer) == '"raed"'
    keys(writer, Keys.TAB)
    assert writer.driver.switch_to.active_element.get_attribute("id") == "policy-text"  # Tab indents
    writer.until(lambda _: leads_out_of_the_text(writer), "Tab does not lead to the problem's place")
    assert "Escape, then Tab" in writer.one("#policy-text").get_attribute("aria-label")


def leads_out_of_the_text(writer) -> bool:
    """Problems that are told anew meanwhile take the focus with them."""
    writer.driver.execute_script("document.getElementById('code').editor.view.focus()")
    keys(writer, Keys.ESCAPE, Keys.ESCAPE, Keys.TAB)
    return writer.driver.execute_script("return document.activeElement.className") == "place"


def test_it_works_without_scripts(person):
    person.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        person.open(EDITOR)
        person.write("#id_source", POLICY.replace('"read" if', '"raed" if'))
        person.click("[name=_check]")
        person.until(lambda driver: driver.find_elements(By.CSS_SELECTOR, "ol.excerpts"), "no problem")
        assert "6" in [number.text for number in person.every(".numbers b")]
        assert not person.one("#code").is_displayed() and not person.one(".beside").is_displayed()
    finally:
        person.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_words_look_as_on_the_pages_of_versions(writer):
    """The editor and `policy.pages.highlight` give the same words the same classes."""
    for path in sorted((ROOT / "tests" / "policies").glob("*.polar")):
        text = path.read_text()
        put(writer, text)
        writer.driver.execute_script("document.querySelector('#code .cm-scroller').scrollTop = 0")
        expected = [[list(word) for word in classes_of(line)] for line in highlighted_lines(text)]

        def looks_alike(driver, lines=[*expected, []]) -> bool:  # noqa: B006  read only
            shown = driver.execute_script(CLASSES)
            return len(shown) > 5 and all(line == lines[number - 1] for number, line in shown)

        # A busy browser colours words a little later.
        writer.until(looks_alike, f"{path.stem}: words look otherwise than on its page")


CLASSES = """
    const {view} = document.getElementById('code').editor;
    const kinds = new Set(['comment', 'string', 'constant', 'number', 'keyword', 'type', 'call']);
    return [...document.querySelectorAll('#code .cm-line')].map((line) => [
        view.state.doc.lineAt(view.posAtDOM(line)).number,
        [...line.querySelectorAll('span')].filter((one) => kinds.has(one.className)).map((one) => [one.className, one.textContent]),
    ]);
"""  # noqa: E501


def classes_of(html: str) -> list[tuple[str, str]]:
    return [(kind, unescape(text)) for kind, text in re.findall(r'<span class="(\w+)">(.*?)</span>', html)]


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)  # marks come from the policy's text, not from a database
def test_typing_is_quick_in_a_long_policy(writer):
    """In the best of some tries: what else runs makes it slower at times, and never faster.

    Other tests run beside it. From a key to the screen is soon enough to be undisturbed now and then; of a mark counts
    what processors do for it, or a part of the wait.
    """
    writer.write_policy(long_policy(2_000))
    for _ in range(TRIES):
        found = measure(writer.driver, writer.service, mistakes=3)
        marking = max(found.work.undisturbed, found.marking.undisturbed / WAITS)
        if found.typing.undisturbed < TYPING_TAKES and marking < MARKING_TAKES:
            return
    raise AssertionError(f"{found.typing}; {found.marking}; {found.work}")
