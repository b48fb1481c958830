"""Settings that are asked for often: what they are, and once they are overridden, what they are then."""

import pytest
from django.conf import settings as usual


def test_they_are_the_settings(settings):
    assert settings.STATEMENT_TIMEOUT == usual.STATEMENT_TIMEOUT
    settings.STATEMENT_TIMEOUT = 17
    assert settings.STATEMENT_TIMEOUT == 17
    with pytest.raises(AttributeError):
        settings.NO_SUCH_SETTING  # noqa: B018
