"""The name to install this by: `authz` on the package index is another project, not to be run by mistake."""

import re
import tomllib
from importlib import metadata

from tests.service import ROOT

NAME = "authz-project"
FOLDERS = ("authz_project", "checks", "facts", "localsql", "policy", "tests", ".ci")
ENDS = (".md", ".py", ".toml", ".yml", ".yaml", ".html", ".service", ".conf", ".json", "Containerfile", "run")
# Another's package: in a command of an installer, or with extras in brackets.
OTHERS = re.compile(
    r"""(?:pip3?|pipx|uvx?(?: pip)?|poetry) (?:install|add|run)\b[^\n`&;|]*?[ "']authz(?![\w./-])|\bauthz\\?\["""
)
HISTORY = ROOT / "authz_project" / "CHANGELOG.md"  # says what was true then


def files():
    yield from (ROOT / "README.md", ROOT / "pyproject.toml")
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if (
                path.is_file()
                and path.name.endswith(ENDS)
                and path not in (HISTORY, ROOT / "tests/test_distribution.py")
            ):
                yield path


def test_nothing_tells_to_install_the_other_package():
    assert OTHERS.search('pip install "authz[otel]"') and OTHERS.search("pip install -U authz")
    assert not OTHERS.search('pip install "authz-project[otel]"') and not OTHERS.search(
        "pip install ./authz_project.whl"
    )
    found = [path for path in files() if OTHERS.search(path.read_text(encoding="utf-8", errors="replace"))]
    assert found == []
    assert len(list(files())) > 500


def test_the_distribution_has_its_own_name_and_the_command_stays():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == NAME and list(project["scripts"]) == ["authz"]
    assert metadata.version(NAME)
    assert {each.name for each in metadata.distribution(NAME).entry_points} == {"authz"}
    named = set(re.findall(rf"{NAME}\[(\w+)\]", "".join(path.read_text(errors="replace") for path in files())))
    assert named <= {*project["optional-dependencies"], "otel"}
