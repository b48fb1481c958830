"""Which part may import which, and which parts run without Django."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
APPS = ("authz_project", "checks", "facts", "localsql", "policy")
ALLOWED = {
    "policy": {"policy"},
    "facts": {"facts", "policy"},
    "checks": {"checks", "facts", "policy"},
    # Of checks: the engine, and what decodes, shapes, runs and advises on questions; not what answers them.
    "localsql": {
        "localsql", "facts", "policy",
        "checks.asking.advice", "checks.asking.askers", "checks.asking.deadline", "checks.asking.open_policy",
        "checks.asking.query", "checks.asking.question", "checks.asking.remembered", "checks.asking.run",
        "checks.asking.session", "checks.engine", "checks.errors", "checks.serializers",
    },
    "authz_project": set(APPS),
}
BARE = (
    "checks/asking/deadline.py", "checks/asking/remembered.py", "localsql/documents.py", "localsql/inspect.py",
    "policy/language/", "policy/rules/", "policy/values.py", "policy/errors.py", "checks/engine/",
    "localsql/bindings.py", "localsql/residual.py", "localsql/relations.py", "localsql/render.py",
    "localsql/planning.py", "localsql/split.py", "localsql/statements.py",
)  # fmt: skip
FRAMEWORKS = ("django", "rest_framework", "environ", "psycopg")


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


def test_no_app_below_knows_the_table_of_keys():
    knowing = [path for path in files() if re.search(r"\bapi_key\b", path.read_text())]
    assert {path.relative_to(ROOT).parts[0] for path in knowing} == {"authz_project"}


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path):
    name = str(path.relative_to(ROOT))
    found = list(imports(path))
    ours = [each for each in found if each.split(".")[0] in APPS]
    allowed = ALLOWED[name.split("/")[0]]
    assert [each for each in ours if not any(is_below(each, prefix) for prefix in allowed)] == []
    if name.startswith(BARE):
        assert [each for each in found if any(is_below(each, framework) for framework in FRAMEWORKS)] == []
