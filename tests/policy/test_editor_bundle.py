"""The editor that is served is made of the sources that are kept."""

import re
from hashlib import sha256
from pathlib import Path

POLICY = Path(__file__).parent.parent.parent / "policy"
SOURCES = POLICY / "editor"
BUILT = POLICY / "static" / "policy" / "editor.js"
LARGEST = 500_000  # bytes


def sources() -> list[str]:
    names = ["build.mjs", "package-lock.json", "package.json"]
    return sorted([*names, *(f"src/{path.name}" for path in (SOURCES / "src").iterdir())])


def test_the_editor_was_built_from_its_sources():
    found = sha256()
    for name in sources():
        found.update(f"{name}\n{(SOURCES / name).read_text(encoding='utf-8')}".encode())
    first = BUILT.read_text(encoding="utf-8").partition("\n")[0]
    how = "build it again: cd policy/editor && npm ci && npm run build"
    assert first == f"/* sha256 of policy/editor: {found.hexdigest()}", how


def test_the_editor_is_small_and_says_whose_it_is():
    text = BUILT.read_text(encoding="utf-8")
    head = text.partition("*/")[0]
    assert len(text.encode()) <= LARGEST
    assert "Copyright (C)" in head and "Permission is hereby granted" in head and "@codemirror/view" in head


def test_no_address_of_a_registry_is_kept():
    for path in [BUILT, *(SOURCES / name for name in sources())]:
        assert not re.search(r"registry\.|resolved\"", path.read_text(encoding="utf-8")), path


def test_versions_are_exact():
    text = (SOURCES / "package.json").read_text()
    versions = re.findall(r'"(?:@[\w-]+/)?[\w-]+": "([^" ]+)"', text)
    assert [each for each in versions if each[0] in "^~*<>"] == []
