"""What `manage.py` says before a command can begin."""

import os
import re
import subprocess
import sys

import pytest

from tests.service import ROOT

COMMANDS = [("load_facts", "-"), ("load_policy", "-"), ("list_api_keys",)]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_database_that_is_not_prepared_is_said_to_be_so(database_urls, tmp_path, kind):
    url = database_urls(kind, "unprepared")
    for command in COMMANDS:
        done = subprocess.run(
            [sys.executable, ROOT / "manage.py", *command], cwd=tmp_path, input="", capture_output=True, text=True,
            env=os.environ | {"DATABASE_URL": url, "SECRET_KEY": "a secret of more than 32 characters"}, timeout=60,
        )  # fmt: skip
        assert done.returncode != 0
        assert "manage.py migrate" in done.stderr and "Traceback" not in done.stderr


def test_the_check_before_deployment_finds_what_is_there_and_nothing_else(tmp_path):
    """Cookies go over plain HTTP, until the admin is said to be reached by HTTPS."""

    def check(**variables: str) -> str:
        return subprocess.run(
            [sys.executable, ROOT / "manage.py", "check", "--deploy"], cwd=tmp_path, capture_output=True, text=True,
            env=os.environ | {"DATABASE_URL": ""} | variables, timeout=60,
        ).stderr  # fmt: skip

    assert set(re.findall(r"\w+\.W\d+", check())) == {"security.W010"}
    assert re.findall(r"\w+\.[WE]\d+", check(CSRF_TRUSTED_ORIGINS="https://authz.example.org")) == []
