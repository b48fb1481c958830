"""The fixture `authz`, for tests that use the database."""

import pytest

from localsql.django.testing import Authorized


@pytest.fixture
def authz(db: None, request: pytest.FixtureRequest) -> Authorized:
    found = Authorized()
    found.addCleanup = request.addfinalizer
    return found
