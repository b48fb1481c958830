"""Every public method of the client is called in this folder."""

from pathlib import Path

import pytest

from tests.clients.conftest import called_in, public_methods
from tests.clients.python_2.conftest import FIRST, NEWEST


@pytest.mark.parametrize("version", [FIRST, NEWEST])
def test_every_public_method_is_called_here(oso_cloud, version):
    called = set().union(*map(called_in, Path(__file__).parent.glob("*.py")))
    assert public_methods(oso_cloud(version)) - called == set()
