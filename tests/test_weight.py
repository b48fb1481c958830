"""The size of the code: each figure may become smaller, and not larger.

    pytest -s tests/test_weight.py -n 0

prints the figures. Whoever makes one smaller lowers its limit.
"""

import ast
import io
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import orjson
import pytest
from django.conf import global_settings

from authz_project import settings, wsgi
from tests.conftest import Api
from tests.service import ROOT

APPS = ("authz_project", "checks", "facts", "localsql", "policy")
# What these names mean depends on the module: they are words of the language, before and after it is compiled, or of
# databases, which differ for the engine and for local SQL; and one is a model, whose table has this name.
TWO_MEANINGS = {
    "Assertion", "Call", "Dialect", "Literal", "Member", "Not", "PostgreSQL",
    "Rule", "SQLite", "Signature", "Term", "Test", "Var",
}  # fmt: skip
LIMITS = {
    "lines": 74_282,
    "files": 296,
    "lines with imports": 4_604,
    "files with `FROM authz_fact`": 2,
    "files that start threads": 1,
    "loops while the policy changes": 1,
    "lines of golden files": 4_862,
    "benchmark programs": 10,
    "files for a question": 14,
    "files for a batch": 13,
    "files for a policy": 50,
    "commands": 34,
    "settings": 39,
    "environment variables": 30,
}
POLICY = """
actor User {}
resource Repo { permissions = ["read"]; roles = ["reader"]; "read" if "reader"; }
test "t" { setup { has_role(User{"ann"}, "reader", Repo{"r"}); } assert allow(User{"ann"}, "read", Repo{"r"}); }
"""
QUESTION = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Repo", "resource_id": "r"}
STRINGS = ast.JoinedStr | ast.Constant
ABOUT_FACTS = re.compile(r"\b(FROM|JOIN|INTO|UPDATE) (authz_(past_)?fact\b|\{(STORED|PAST)\b)")
FACT = {"predicate": "has_role", "args": [{"type": "User", "id": "ann"}, {"type": "String", "id": "reader"}]}


@cache
def texts() -> dict[Path, str]:
    paths = (path for app in APPS for path in sorted((ROOT / app).rglob("*.py")))
    return {path: path.read_text() for path in paths if {"migrations", "wiki"}.isdisjoint(path.parts)}


def test_a_class_name_means_one_thing():
    places = defaultdict(set)
    for path, text in texts().items():
        for node in ast.parse(text).body:
            for name in names_of(node):
                places[name].add(path.relative_to(ROOT))
    meanings = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert meanings.keys() <= TWO_MEANINGS, {
        name: paths for name, paths in meanings.items() if name not in TWO_MEANINGS
    }
    assert meanings.keys() >= TWO_MEANINGS, "these mean one thing now: remove them from the list"


def names_of(node: ast.stmt) -> list[str]:
    """Return the classes and type aliases that a statement defines; every command is a `Command`."""
    match node:
        case ast.ClassDef(name="Command"):
            return []
        case ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            word = name.lstrip("_")
            return [name] if word[:1].isupper() and not word.isupper() else []
    return []


def files_with(pattern: str) -> int:
    return sum(re.search(pattern, text) is not None for text in texts().values())


def has_statement_about_facts(text: str) -> bool:
    """Return whether code, docstrings aside, has a statement about the tables of facts, named or by their constants."""
    nodes = list(ast.walk(ast.parse(text)))
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    strings = (ast.unparse(node) for node in nodes if isinstance(node, STRINGS) and id(node) not in docs)
    return any(map(ABOUT_FACTS.search, strings))


def written() -> dict[str, int]:
    """Return the figures that are read from the files."""
    golden = ROOT / "tests" / "checks" / "golden_plans"
    return {
        "lines": sum(text.count("\n") for text in texts().values()),
        "files": len(texts()),
        "lines with imports": sum(import_lines(text) for text in texts().values()),
        "files with `FROM authz_fact`": sum(has_statement_about_facts(text) for text in texts().values()),
        "files that start threads": files_with(r"\b(Thread|Timer|ThreadPoolExecutor)\("),
        "loops while the policy changes": sum("raise PolicyMoved" in text for text in texts().values()),
        "lines of golden files": sum(path.read_text().count("\n") for path in golden.rglob("*") if path.is_file()),
        "commands": sum(path.parent.name == "commands" and path.stem != "__init__" for path in texts()),
        "settings": sum(name.isupper() and not hasattr(global_settings, name) for name in vars(settings)),
        "environment variables": sum(not name.startswith("OTEL_") for name in environment_variables()),
        "benchmark programs": sum(
            "argparse" in path.read_text() or "__main__" in path.read_text()
            for path in (ROOT / "tests" / "benchmarks").glob("*.py")
        ),
    }


def environment_variables() -> set[str]:
    """Return those that `settings` reads, but for those that the server sets for its workers."""
    text = Path(settings.__file__).read_text()
    found = re.findall(r'\b(?:texts?|environ\.get|number|whole|boolean|choice|origins|share)\(\s*"([A-Z_]+)"', text)
    return {name for name in found if not name.startswith("AUTHZ_")}


def import_lines(text: str) -> int:
    imports = (node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or 0) - node.lineno + 1 for node in imports)


@pytest.fixture
def walked(new_api) -> dict[str, int]:
    """How many files of the product run for a request that has been made before."""
    api = new_api()
    bodies = {
        "question": ("/api/authorize", QUESTION),
        "batch": ("/api/batch", [{"inserts": [repo_fact("r"), repo_fact("s")]}]),
        "policy": ("/api/policy", {"src": POLICY, "filename": ""}),
    }
    for name in ("policy", "batch", "question", "question", "batch"):
        send(api, *bodies[name])
    bodies["question"][1]["actor_id"] = "ben"  # else the same answer may be kept
    bodies["policy"][1]["src"] += "\n"
    return {f"files for a {name}": files_of(partial(send, api, *body)) for name, body in bodies.items()}


def repo_fact(name: str) -> dict:
    return {**FACT, "args": [*FACT["args"], {"type": "Repo", "id": name}]}


def send(api: Api, path: str, body: object) -> None:
    text = orjson.dumps(body)
    status, _, content = wsgi.ROUTES[path].answer({
        "REQUEST_METHOD": "POST", "PATH_INFO": path, "QUERY_STRING": "", "CONTENT_LENGTH": str(len(text)),
        "wsgi.input": io.BytesIO(text), "HTTP_AUTHORIZATION": f"Bearer {api.key}",
    })  # fmt: skip
    assert status < 300, content


def files_of(act: Callable[[], None]) -> int:
    files = set()

    def note(frame, event, argument) -> None:
        files.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return len(files & {str(path) for path in texts()})


@pytest.mark.one_database
def test_no_figure_grows(walked):
    figures = written() | walked
    print()
    for name, limit in LIMITS.items():
        print(f"{name:<32}{figures[name]:>8,}  at most {limit:,}")
    assert [name for name, limit in LIMITS.items() if figures[name] > limit] == []
