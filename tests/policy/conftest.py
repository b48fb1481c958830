"""Golden files: a text beside what is expected of it. `pytest tests/policy --rewrite` writes them anew."""

from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser):
    parser.addoption("--rewrite", action="store_true", help="write the golden files anew; review the difference")


@pytest.fixture
def golden(request):
    """Holds a result against the golden file beside a case."""
    rewrite = request.config.getoption("--rewrite", default=False)

    def compare(case: Path, actual: str) -> None:
        expected = case.with_suffix(".expected")
        if rewrite:
            expected.write_text(actual, encoding="utf-8", newline="")
        assert actual == expected.read_bytes().decode(), f"{expected.name} differs; see --rewrite"

    return compare


def cases(folder: str) -> list[pytest.param]:
    """The policies of a golden folder, as parameters named by file."""
    found = sorted((GOLDEN / folder).glob("*.polar"))
    return [pytest.param(path, id=path.stem) for path in found]
