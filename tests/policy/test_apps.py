"""What keeps the service from starting."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.long
def test_python_that_strips_docstrings_is_refused(tmp_path):
    command = [sys.executable, "-OO", "-B", ROOT / "manage.py", "check"]
    environment = os.environ | {"DATABASE_URL": "", "SECRET_KEY": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert "policy.E001" in done.stderr
