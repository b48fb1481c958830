"""Check which part may import which, and which parts run without Django."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path

from policy.rules.components import Components

ROOT = Path(__file__).parent.parent
APPS = ("authz_project", "checks", "facts", "localsql", "policy")
ALLOWED = {
    "policy": {"policy"},
    "facts": {"facts", "policy"},
    "checks": {"checks", "facts", "policy"},
    # Of checks: the engine, and what decodes, shapes, runs, advises on, explains and logs questions; not what answers.
    "localsql": {
        "localsql",
        "facts",
        "policy",
        "checks.views",
        "checks.asking.advice",
        "checks.asking.ask",  # its answers by `localsql.django`, as `checks.explain` is
        "checks.asking.conditions",
        "checks.asking.limits",
        "checks.asking.question",
        "checks.asking.run",
        "checks.engine",
        "checks.errors",
        "checks.explain",
        "checks.serializers",
    },
    "authz_project": set(APPS),
}
BARE = (
    "checks/asking/limits.py", "checks/engine/", "localsql/bindings.py",
    "localsql/fold.py", "localsql/plan.py", "localsql/render.py",
    "policy/language/", "policy/rules/", "policy/errors.py", "policy/values.py",
    "policy/yaml_text.py",
)  # fmt: skip
# What is in `policy/core` may use of the rest of the app: the replicas are told of a revision.
CORE = ("policy.core", "policy.errors", "policy.replicas.reading", "policy.values")
FRAMEWORKS = ("django", "rest_framework", "environ", "psycopg")
# Of the engine: each package uses those before it. The files beside them are leaves: all packages use them, they use
# none.
PACKAGES = tuple(f"checks.engine.{package}" for package in ("rules", "plan", "sql", "compile"))


def files() -> list[Path]:
    return [path for app in APPS for path in sorted((ROOT / app).rglob("*.py")) if "wiki" not in path.parts]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> tuple[str, ...]:
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


def test_imports_go_one_way():
    wrong = []
    for path in files():
        name = str(path.relative_to(ROOT))
        allowed = ALLOWED[name.split("/")[0]]
        for imported in imports(path):
            if imported.split(".")[0] in APPS and not any(is_below(imported, prefix) for prefix in allowed):
                wrong.append(f"{name} imports {imported}, of a layer above it")
            if name.startswith("policy/core/") and is_below(imported, "policy") and not imported.startswith(CORE):
                wrong.append(f"{name} imports {imported}, but what is in `core` knows nothing of policies")
            if name.startswith(BARE) and any(is_below(imported, framework) for framework in FRAMEWORKS):
                wrong.append(f"{name} imports {imported}, but must run without a framework")
    for name, imported_files in graph().items():
        if is_below(name, "checks.engine"):
            place = next((place for place, package in enumerate(PACKAGES) if is_below(name, package)), -1)
            later = PACKAGES[place + 1 :]
            wrong += [
                f"{name} imports {other}, a later package of the engine"
                for other in sorted(imported_files)
                if any(is_below(other, package) for package in later)
            ]
    assert wrong == []


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


def test_imports_stand_at_the_top():
    """An import in a function or under a condition hides a circle, or what a file costs to import."""
    inner = []
    for path in files():
        parsed = tree(path)
        imported = {node for node in ast.walk(parsed) if isinstance(node, ast.Import | ast.ImportFrom)}
        inner += [f"{path.relative_to(ROOT)}: {ast.unparse(node)}" for node in imported - set(parsed.body)]
    assert inner == []


def test_no_app_below_knows_the_table_of_keys():
    knowing = [path for path in files() if re.search(r"\bapi_key\b", path.read_text())]
    assert {path.relative_to(ROOT).parts[0] for path in knowing} == {"authz_project"}
