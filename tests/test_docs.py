"""What the documents name exists, and what exists is named in them: once, on the page that has the table."""

import re

import django.core.management
import pytest
from django.contrib.auth import management
from django.core.management import BaseCommand, find_commands, get_commands, load_command_class
from django.urls import URLPattern, URLResolver, get_resolver

from authz_project.urls import endpoints
from tests.contract import document
from tests.samples import DOCS, DOCUMENTS, FENCE, PAGES
from tests.service import ROOT
from tests.test_weight import environment_variables

INSIDE = (DOCS / "inside.md").read_text()
OF_EVERY_COMMAND = {action.dest for action in BaseCommand().create_parser("", "")._actions}
MANAGEMENT_OF_FRAMEWORK = (*django.core.management.__path__, *management.__path__)
APPS = ("authz_project", "checks", "facts", "localsql", "policy")


BESIDE_API = ("/test_environment", "/readyz", "/access/", "/.well-known/")


def tables(page: str, title: str = "") -> str:
    """What a page says, or one of its sections; without its samples."""
    text = FENCE.sub("", (DOCS / f"{page}.md").read_text())
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0] if title else text


def first_cells(text: str) -> list[str]:
    """What stands in backticks in the first column of the tables."""
    rows = [re.split(r"(?<!\\)\|", line)[1] for line in text.splitlines() if line.startswith("| `")]
    return [quoted for row in rows for quoted in re.findall(r"`([^`]+)`", row)]


def paths(resolver: URLResolver, prefix: str = "/") -> set[str]:
    found = set()
    for entry in resolver.url_patterns:
        path = f"{prefix}{entry.pattern}"
        found |= {path} if isinstance(entry, URLPattern) else paths(entry, path)
    return found


def test_every_endpoint_is_named():
    served = {path.removeprefix("/api") for path in paths(get_resolver()) if path.startswith("/api/")}
    named = {cell.split()[-1] for cell in first_cells(tables("interface", "All endpoints")) if "/" in cell}
    assert {each for each in named if not each.startswith(BESIDE_API)} == served


def test_every_setting_is_named():
    assert sorted(first_cells(tables("settings"))) == sorted(environment_variables())


def test_every_command_is_named_once():
    """But for those of the framework that only begin sooner here."""
    of_framework = {name for folder in MANAGEMENT_OF_FRAMEWORK for name in find_commands(folder)}
    ours = sorted(name for name, app in get_commands().items() if app in APPS and name not in of_framework)
    assert sorted(cell.split()[0] for cell in first_cells(tables("commands"))) == ours


def test_every_status_is_named():
    """Besides those that the page names for all endpoints, below the table."""
    general = re.search(r"^Any endpoint answers (.*?) \(", tables("interface", "All endpoints"), re.MULTILINE)[1]
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            told = set(operation["responses"]) - set(re.findall(r"\d{3}", general))
            assert set(row_of(method.upper(), path.removeprefix("/api"))[-1].split()) == told, (method, path)


def test_every_scope_is_named():
    """As the endpoint has it, and as the description of the interface has it."""
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            endpoint = endpoints[path[1:]]
            scope = endpoint.scopes.get(method.upper(), "") if endpoint.needs_key else ""
            shown = {None: "any", "": ""}.get(scope, f"`{scope}`")
            assert row_of(method.upper(), path.removeprefix("/api"))[-2] == shown, (method, path)
            described = [{"key": [scope] if scope else []}] if endpoint.needs_key else []
            assert operation["security"] == described, (method, path)


def row_of(method: str, path: str) -> list[str]:
    """The row that names the endpoint; a row's first method counts for all in it."""
    for line in tables("interface", "All endpoints").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = re.findall(r"`(?:(GET|POST|DELETE) )?(/[^`]*)`", cells[0])
        methods = [name for name, _ in names if name]
        if any(each == path and (name or methods[0]) == method for name, each in names):
            return cells
    raise AssertionError(f"no row names {method} {path}")


@pytest.mark.parametrize("cell", first_cells(tables("commands")))
def test_every_option_is_named_and_exists(cell):
    name, *usage = cell.split()
    parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
    ours = [action for action in every_action(parser) if action.dest not in OF_EVERY_COMMAND]
    options = {option for action in ours for option in action.option_strings if option[:2] == "--"}
    assert {*re.findall(r"--[a-z-]+", cell), "--environment"} == options | {"--environment"}
    kinds = {kind for action in parser._actions if isinstance(action.choices, dict) for kind in action.choices}
    assert kinds == (set(re.findall("[a-z]+", usage[0])) if kinds else set())


def every_action(parser):
    for action in parser._actions:
        yield action
        for inner in (action.choices or {}).values() if isinstance(action.choices, dict) else ():
            yield from every_action(inner)


def test_every_file_exists():
    text = "\n".join(document.text for document in DOCUMENTS)
    named = re.findall(r"`((?:\.ci|authz_project|checks|facts|localsql|policy|tests)/[\w./-]*)`", text)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_file_that_inside_names_exists():
    """Also those of a room, as in `rules/` (live, rename)."""
    paths = re.findall(rf"`((?:{'|'.join(APPS)}|tests)/[\w./]*)", INSIDE)
    for room, text in re.findall(r"`([\w/]+/)` \(([^)]*)\)", INSIDE):
        paths += [f"{room}{name}.py" for name in re.findall(r"(?:^|[,;] )(\w+)(?=[,;]|$)", text)]
    assert len(paths) > 70
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_everything_that_inside_names_of_a_file_is_there():
    """As in `file.py`: `name`, `other`, and in `file.py: name`."""
    told = re.findall(r"`([\w/]+\.py)`: ((?:(?:, )?`[\w.]+`)+)", INSIDE)
    told += re.findall(r"`([\w/]+\.py): ([\w.]+)`", INSIDE)
    named = [(path, name) for path, names in told for name in re.findall(r"[\w.]+", names)]
    assert len(named) > 50
    assert [f"{path}: {name}" for path, name in named if not defines(path, name)] == []


def defines(path: str, name: str) -> bool:
    text = (ROOT / path).read_text()
    made = (rf"^ *(?:def|class) {part}\b|^(?:\w+, )*{part}\b.*=" for part in name.split("."))
    return all(re.search(pattern, text, re.MULTILINE) for pattern in made)


def test_every_word_is_explained_once():
    text = "\n".join(tables(document.path.stem, "Words") for document in PAGES)
    words = re.findall(r"^\| \*([\w ]+)\* \|", text, re.MULTILINE)
    assert len(words) == len(set(words)) > 10


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 180


def test_every_test_that_the_page_about_security_names_exists():
    named = set(re.findall(r"`(test_\w+)`", (DOCS / "security.md").read_text()))
    in_a_project = ROOT / "tests" / "embedded" / "wiki.py"
    paths = [*(ROOT / "tests").rglob("test_*.py"), in_a_project]
    files = [path.read_text() for path in paths]
    written = {name for text in files for name in re.findall(r"^ *def (test_\w+)\(", text, re.MULTILINE)}
    assert len(named) > 20 and named - written == set()


def test_every_promise_about_security_names_a_test():
    promises = [line for line in tables("security", "Guarantees").splitlines() if line.startswith("| ")][2:]
    assert promises and [line for line in promises if "`test_" not in line] == []
