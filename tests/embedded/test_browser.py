"""The example project in a real browser: log in, read, edit, share, and be denied."""

import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import requests

from tests.browsing import Browser, driver
from tests.embedded.test_projects import WIKI, run, surroundings
from tests.postgresql import free_port

__all__ = ["driver"]  # a fixture


@pytest.fixture
def wiki(tmp_path, driver):
    database = {"WIKI_DATABASE_URL": f"sqlite:///{tmp_path / 'wiki.sqlite3'}"}
    run("manage.py", "migrate", **database)
    run("manage.py", "make_rows", "--rows", "200", "--users", "40", **database)
    origin = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "manage.py", "runserver", "--noreload", origin.removeprefix("http://")]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=WIKI, env=surroundings(**database), stdout=log, stderr=log)
    try:
        for _ in range(600):
            try:
                requests.get(f"{origin}/login/", timeout=5)
                break
            except requests.ConnectionError:
                time.sleep(0.1)
        yield Browser(driver, SimpleNamespace(origin=origin), tmp_path)
    finally:
        server.terminate()
        server.wait(30)


def logged_in(wiki: Browser, name: str) -> None:
    wiki.driver.delete_all_cookies()
    wiki.open("/login/")
    wiki.write("#id_username", name)
    wiki.write("#id_password", "wiki")
    wiki.click("button")
    wiki.until(lambda driver: name in driver.find_element("tag name", "body").text, f"{name} is not logged in")


@pytest.mark.one_database
def test_a_member_edits_and_shares_and_others_are_denied(wiki):
    logged_in(wiki, "user11")
    edit = wiki.one("a[href$='/edit/']").get_attribute("href")
    page = edit.removesuffix("edit/")
    logged_in(wiki, "user19")  # of another organization
    wiki.driver.get(page)
    wiki.until(lambda driver: "403" in driver.page_source, "not denied")
    logged_in(wiki, "user11")
    wiki.driver.get(edit)
    wiki.write("#id_title", "A new title")
    wiki.click("button")
    wiki.until(lambda driver: "A new title" in driver.find_element("tag name", "h1").text, "not saved")
    wiki.write("input[name=username]", "user19")
    wiki.click("button")
    wiki.until(lambda driver: "user19" in driver.find_element("id", "readers").text, "not shared")
    logged_in(wiki, "user19")
    wiki.driver.get(page)
    wiki.until(lambda driver: "A new title" in driver.find_element("tag name", "h1").text, "not shown")
    assert not wiki.every("input[name=username]")
    wiki.driver.get(edit)
    wiki.until(lambda driver: "403" in driver.page_source, "not denied")
