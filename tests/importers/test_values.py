"""Values that are none on the other side, or are not supported, are refused."""

import pytest

from authz_project.importers.cel import NoEquivalent, network_bounds, values_of
from authz_project.importers.cel import test_of as read_test
from authz_project.importers.files import NotParsed
from authz_project.importers.ir import NOWHERE, ModelParameter


@pytest.mark.parametrize(
    ("type_name", "raw"),
    [
        ("uint", -1), ("int", "1_000"), ("int", " 1"), ("int", "1e3"), ("int", "1e9999999"), ("double", "1e9999999"),
        ("double", 2**53 + 1), ("double", "nan"), ("int", 2**63), ("duration", "9223372037s"),
        ("timestamp", "0001-01-01T00:00:00+01:00"), ("timestamp", "9999-12-31T23:59:59-01:00"),
        ("timestamp", "2026-01-01t00:00:00Z"), ("timestamp", "2026-01-01T00:00:00z"), ("duration", 0),
        ("bool", "true"), ("bool", "false"), ("list<bool>", ["true"]),
        ("int", 2**53 + 1), ("int", -(2**53) - 1), ("int", 1.2345678901234567e18),
    ],
)  # fmt: skip
def test_a_value_that_is_none_is_refused(type_name, raw):
    with pytest.raises(NoEquivalent):
        values_of(type_name, raw)


@pytest.mark.parametrize("type_name", ["list<bool>", "list<int>", "list<string>"])
def test_an_empty_list_has_nothing_of_its_type(type_name):
    (empty,) = values_of(type_name, [])
    (some,) = values_of(type_name, [{"list<bool>": False, "list<int>": 0, "list<string>": "a"}[type_name]])
    assert empty.type != some.type


def test_a_network_says_how_long_it_is():
    assert network_bounds("10.0.0.0/8") == (10 << 24, (11 << 24) - 1)
    for text in ("10.0.0.0", "10.0.0.0/255.0.0.0", "10.0.0.0/08"):
        with pytest.raises(ValueError, match="not a network"):
            network_bounds(text)


@pytest.mark.parametrize("text", [r"x == '\101'", r"x == '\q'", r"x == '\xZZ'"])
def test_an_escape_that_is_not_known_is_refused(text):
    def read(written):
        return read_test(written, [ModelParameter("x", "string")], lambda offset: NOWHERE)

    with pytest.raises(NotParsed):
        read(text)
    assert read(r"x == 'a\\\'\n\x41'").right.value == "a\\'\nA"
