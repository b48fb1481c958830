"""Takes the picture of the workbench that the README shows, in a browser: `python -m tests.pictures`."""

import tempfile
from pathlib import Path
from urllib.parse import quote

from selenium.webdriver.support.ui import WebDriverWait

from tests.standalone import set_up

set_up()

from tests.browsing import PERSON, a_driver, manage, service_for_people  # noqa: E402
from tests.samples import DOCS, page  # noqa: E402

QUESTION = "kind=authorize&actor=User:ann&action=edit&resource=Document:holidays"
WIDTH, HEIGHT = 1280, 850


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = f"sqlite:///{folder / 'authz.sqlite3'}"
        service = service_for_people(folder, url)
        try:
            for made in ("main.polar", "facts.csv"):
                (folder / made).write_text(written(made))
            manage(folder, url, "load_policy", "main.polar", "--note", "Folders, teams and public pages")
            manage(folder, url, "load_facts", "facts.csv")
            take(service.origin, folder)
        finally:
            service.stop()


def written(name: str) -> str:
    """A file of the tutorial."""
    for sample in page("tutorial").samples:
        _, opening, rest = sample.text.partition(f"cat > {name} <<'END'\n")
        if opening:
            return rest.partition("\nEND\n")[0] + "\n"
    raise LookupError(name)


def take(origin: str, folder: Path) -> None:
    with a_driver(folder / "profile") as driver:
        wait = WebDriverWait(driver, 20)
        metrics = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        driver.get(f"{origin}/admin/login/?next=/admin/go/ask/?{quote(QUESTION)}")
        driver.find_element("name", "username").send_keys(PERSON["DJANGO_SUPERUSER_USERNAME"])
        driver.find_element("name", "password").send_keys(PERSON["DJANGO_SUPERUSER_PASSWORD"])
        driver.find_element("css selector", "[type=submit]").click()
        wait.until(lambda driver: "actor=User" in driver.current_url and driver.find_elements("id", "places"))
        path = DOCS / "workbench.png"
        driver.save_screenshot(str(path))
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
