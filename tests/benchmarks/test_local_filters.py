"""The conditions by hand mean the same as the produced ones: what is measured is comparable."""

import psycopg
import pytest

from tests.benchmarks.local_filters import FILTERS, by_hand, fill, made, prepared_asker, same_rows

USER, ROWS = "user7", 4000


@pytest.fixture(scope="session")
def application(postgresql_server):
    with psycopg.connect(postgresql_server.create("application"), autocommit=True) as connection:
        fill(connection, ROWS)
        yield connection


def test_both_sides_select_the_same_rows(db, application):
    asker = prepared_asker(USER)
    for each in FILTERS:
        assert same_rows(application, by_hand(each, USER), made(asker, each.action, USER)) > 0, each.name
