"""Random requests, right and wrong, made from the description of the interface: no server error, no other answer."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract import OPERATIONS, SOURCE

pytestmark = pytest.mark.long

WITHIN = 1200  # seconds; it takes a fortieth of that


def fuzz(folder: Path, origin: str, *options: str) -> subprocess.CompletedProcess:
    command = [
        Path(sys.executable).with_name("schemathesis"),
        "--config-file", Path(__file__).with_name("schemathesis.toml"),
        "run", f"{origin}/api/openapi.json",
        "--seed", "1", "--no-shrink", "--continue-on-failure", "--warnings", "off", *options,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN, cwd=folder, check=False)


@pytest.fixture
def key(service) -> str:
    """Of an environment where questions have answers."""
    client = service.fresh_client()
    client.post("/policy", {"src": SOURCE})
    client.post("/batch", next(each.example["body"] for each in OPERATIONS if each.path == "/api/batch"))
    return client.key


@pytest.mark.parametrize(
    ("service", "phases"),
    [("sqlite", "examples,coverage,fuzzing"), ("postgresql", "examples,fuzzing")],  # coverage is of the shapes alone
    indirect=["service"],
)
def test_random_requests_are_answered_as_described(service, key, tmp_path, phases):
    done = fuzz(tmp_path, service.origin, "-H", f"Authorization: Bearer {key}", "--phases", phases, "-n", "5")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.one_database
def test_random_requests_without_a_key_are_refused_as_described(service, tmp_path):
    done = fuzz(tmp_path, service.origin, "--phases", "examples,fuzzing", "-n", "3")
    assert done.returncode == 0, done.stdout + done.stderr
