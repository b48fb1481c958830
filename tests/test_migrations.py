"""The migrations say what the models say."""

import pytest
from django.core.management import call_command


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)  # it is about the models
def test_no_migration_is_missing(db):
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)
