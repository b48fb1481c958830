"""Whatever is sent is accepted or refused as documented: the kept inputs each day, new ones in the long set."""

import importlib.util
import subprocess
import sys

import pytest

from tests.fuzzing import targets
from tests.fuzzing.run_long import TARGETS
from tests.service import ROOT

SECONDS = 4  # of new inputs for each target


@pytest.mark.parametrize("target", ["policy", "bindings"])
def test_the_corpus_raises_only_documented_refusals(target):
    replay(target)


def test_the_corpus_of_requests_is_answered_as_documented(db):
    replay("requests")


def replay(target: str) -> None:
    run = targets.begun(target, migrates=False)
    inputs = sorted((targets.CORPUS / target).iterdir())
    assert inputs
    for path in inputs:
        try:
            run(path.read_bytes())
        except Exception as error:
            raise AssertionError(f"{path.name} raises what is no documented refusal") from error


def test_a_fault_is_found():
    """What is no refusal comes out, or fuzzing would find nothing whatever happens."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(targets.rules, "compile_text", lambda text: 1 / 0)
        targets.compile_policy(b"actor User {}")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(targets, "config_from_text", lambda text, around: 1 / 0)
        targets.read_bindings(b"facts: {}")


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="Atheris has no wheel for this platform")
def test_fuzzing_finds_nothing(tmp_path, target):
    command = [sys.executable, "-m", "tests.fuzzing.run_long", target, "--seconds", str(SECONDS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
