"""The name to install this by: `authz` on the package index is another project, not to be run by mistake."""

import re
import tomllib
from importlib import metadata

from authz_project import __version__
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


def test_the_changelog_keeps_the_usual_form():
    """Keep a Changelog: versions with a date or unreleased, the latest first, and their kinds of changes in order."""
    kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    title, *versions = re.split(r"^## ", HISTORY.read_text(), flags=re.MULTILINE)
    assert title.startswith("# Changelog\n") and "keepachangelog.com" in title
    assert versions[0].startswith((__version__, "Unreleased"))
    for version in versions:
        assert re.match(r"(Unreleased|\d+\.\d+\.\d+( - \d{4}-\d\d-\d\d)?)\n", version)
        _, *sections = re.split(r"^### ", version, flags=re.MULTILINE)
        named = [section.partition("\n")[0] for section in sections]
        assert named == [kind for kind in kinds if kind in named] and named
        for section in sections:
            lines = section.strip().splitlines()[2:]
            assert lines and all(line == "" or line.startswith(("- ", "  ")) for line in lines)
