"""The fixture `authz`, for tests that use the database."""

import pytest

from localsql.django.testing import Authorized


@pytest.fixture
def authz(db: None) -> Authorized:
    return Authorized()
