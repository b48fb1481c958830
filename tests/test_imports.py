"""Which part may import which, and which parts run without Django."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path

import pytest

from policy.rules.components import Components

ROOT = Path(__file__).parent.parent
APPS = ("authz_project", "checks", "facts", "localsql", "policy")
ALLOWED = {
    "policy": {"policy"},
    "facts": {"facts", "policy"},
    "checks": {"checks", "facts", "policy"},
    # Of checks: the engine, and what decodes, shapes, runs, advises on and logs questions; not what answers them.
    "localsql": {
        "localsql",
        "facts",
        "policy",
        "checks.asking.advice",
        "checks.asking.askers",
        "checks.asking.cache",
        "checks.asking.deadline",
        "checks.asking.open_policy",
        "checks.asking.query",
        "checks.asking.question",
        "checks.asking.redacted",
        "checks.asking.run",
        "checks.asking.session",
        "checks.decisions.log",
        "checks.engine",
        "checks.errors",
        "checks.serializers",
    },
    "authz_project": set(APPS),
}
BARE = (
    "checks/asking/cache.py", "checks/asking/deadline.py", "localsql/documents.py", "localsql/binding_queries.py",
    "policy/language/", "policy/rules/", "policy/values.py", "policy/errors.py", "policy/fact_text.py",
    "checks/engine/", "localsql/bindings.py", "localsql/residual.py", "localsql/relations.py", "localsql/render.py",
    "localsql/planning.py", "localsql/split.py", "localsql/statements.py",
)  # fmt: skip
FRAMEWORKS = ("django", "rest_framework", "environ", "psycopg")
# Of the engine: each package uses those before it. The files beside them are leaves: all packages use them, they use
# none.
PACKAGES = tuple(f"checks.engine.{package}" for package in ("rules", "plan", "sql", "compile", "by_rows"))


def files() -> list[Path]:
    return [path for app in APPS for path in sorted((ROOT / app).rglob("*.py"))]


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path):
    name = str(path.relative_to(ROOT))
    found = list(imports(path))
    ours = [each for each in found if each.split(".")[0] in APPS]
    allowed = ALLOWED[name.split("/")[0]]
    assert [each for each in ours if not any(is_below(each, prefix) for prefix in allowed)] == []
    if name.startswith(BARE):
        assert [each for each in found if any(is_below(each, framework) for framework in FRAMEWORKS)] == []


# ---- what the files of the project import of one another ---------------------------------------------------------


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def graph() -> dict[str, frozenset[str]]:
    """Every file by its dotted name, with the files that run when it is imported.

    Those are the ones that it names, wherever in it, for types too; and the `__init__.py` of each folder on the way
    there, but for those of its own folders, which run first.
    """
    modules = {module_of(path): path for path in files()}
    return {name: frozenset(needed(name, path, modules)) for name, path in modules.items()}


def needed(name: str, path: Path, modules: dict[str, Path]) -> Iterator[str]:
    for imported in imports(path):
        for on_the_way in accumulate(imported.split("."), "{}.{}".format):
            if on_the_way in modules and not is_below(name, on_the_way):
                yield on_the_way


def test_no_files_import_each_other_in_a_circle():
    components = Components(lambda name: sorted(graph()[name]))
    circles: dict[int, list[str]] = {}
    for name in graph():
        if (number := components.number(name)) is not None:
            circles.setdefault(number, []).append(name)
    assert [*circles.values()] == []


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_stand_at_the_top(path):
    """An import in a function or under a condition hides a circle, or what a file costs to import."""
    tree = ast.parse(path.read_text())
    imported = {node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)}
    assert [ast.unparse(node) for node in imported - set(tree.body)] == []


@pytest.mark.parametrize("name", [name for name in map(module_of, files()) if is_below(name, "checks.engine")])
def test_packages_of_the_engine_use_each_other_in_one_direction(name):
    place = next((place for place, package in enumerate(PACKAGES) if is_below(name, package)), -1)
    later = PACKAGES[place + 1 :]
    assert [other for other in graph()[name] if any(is_below(other, package) for package in later)] == []


def test_no_app_below_knows_the_table_of_keys():
    knowing = [path for path in files() if re.search(r"\bapi_key\b", path.read_text())]
    assert {path.relative_to(ROOT).parts[0] for path in knowing} == {"authz_project"}
