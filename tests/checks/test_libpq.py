"""The direct calls of libpq do what the driver's cursors do, in good times and in bad."""

import psycopg
import pytest

from checks.asking import postgresql

NEVER = 1_000_000  # does the driver prepare; None says that a pooler is between
VALUES = "SELECT $1::text, $2::bigint, $3::text, $4::boolean, 7 < $2::bigint"


@pytest.fixture(scope="session")
def url(postgresql_server):
    return postgresql_server.create("libpq")


@pytest.fixture
def raw(url):
    with psycopg.connect(url, autocommit=True, prepare_threshold=NEVER) as connection:
        yield connection


def prepared(raw) -> int:
    return raw.execute("SELECT count(*) FROM pg_prepared_statements WHERE name <> 'nothing'").fetchone()[0]


def test_values_come_back_as_from_a_cursor(raw):
    values = ["Zoë, 'quoted' \\", -(2**40), None, True]
    for _ in range(3):
        assert postgresql.rows(raw, VALUES, values) == psycopg.RawCursor(raw).execute(VALUES, values).fetchall()


def test_all_rows_come_in_their_order(raw):
    assert postgresql.rows(raw, "SELECT n FROM generate_series(1, $1::bigint) n", [3000])[-1] == (3000,)
    assert postgresql.rows(raw, "SELECT 1 WHERE false", []) == []


def test_what_is_asked_again_is_prepared_once(raw):
    for times, expected in enumerate((0, 1, 1, 1)):
        assert postgresql.rows(raw, "SELECT $1::text", [str(times)]) == [(str(times),)]
        assert prepared(raw) == expected


def test_what_was_not_asked_for_longest_makes_room(raw, monkeypatch):
    monkeypatch.setattr(postgresql, "MOST_PREPARED", 3)
    for _ in range(2):
        for number in range(5):
            for _ in range(2):
                assert postgresql.rows(raw, f"SELECT {number}", []) == [(number,)]
    assert prepared(raw) == 3


def test_a_nul_is_refused_where_it_would_end_the_text(raw):
    with pytest.raises(psycopg.DataError, match="NUL"):
        postgresql.rows(raw, "SELECT $1::text", ["ann\0"])


@pytest.mark.parametrize("times", [1, 2, 3])
def test_what_goes_wrong_is_raised_by_its_class(raw, times):
    for _ in range(times):
        with pytest.raises(psycopg.errors.DivisionByZero):
            postgresql.rows(raw, "SELECT 1 / $1::integer", [0])
        with pytest.raises(psycopg.errors.SyntaxError):
            postgresql.rows(raw, "SELECT FROM WHERE", [])


def test_a_statement_that_runs_out_of_time_is_cancelled(raw):
    raw.execute("SET statement_timeout = 50")
    for _ in range(2):
        with pytest.raises(psycopg.errors.QueryCanceled):
            postgresql.rows(raw, "SELECT pg_sleep($1::float8)::text", ["5"])


def test_a_connection_that_is_lost_says_so_and_runs_nothing_more(raw, url):
    (own,) = postgresql.rows(raw, "SELECT pg_backend_pid()", [])
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", own)
    with pytest.raises(psycopg.OperationalError):
        postgresql.rows(raw, "SELECT 1", [])
    assert not postgresql.can_run(raw)


def test_a_glance_is_given_numbers(raw):
    sql = "SELECT oid::bigint, NULL::bigint, -7 FROM pg_class WHERE relname = $1"
    assert postgresql.glance(raw, sql, "pg_class") is None  # it is not prepared yet
    for _ in range(2):
        rows = postgresql.rows(raw, sql, ["pg_class"])
    assert postgresql.glance(raw, sql, "pg_class") == rows[0]
    assert postgresql.glance(raw, sql, "no such") is None


def test_a_glance_at_what_goes_wrong_is_given_nothing(raw, url):
    own = "SELECT pg_backend_pid() WHERE $1 <> ''"
    for _ in range(2):
        ((process,),) = postgresql.rows(raw, own, ["x"])
    raw.autocommit = False
    assert postgresql.glance(raw, own, "x") is None  # a transaction of the framework is left to cursors
    raw.autocommit = True
    with postgresql.snapshot(raw):
        assert postgresql.glance(raw, own, "x") is None
    assert postgresql.glance(raw, own, "x") == (process,)
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [process])
    assert postgresql.glance(raw, own, "x") is None
    assert postgresql.glance(raw, own, "x") is None and not postgresql.can_run(raw)


def test_a_glance_that_runs_out_of_time_is_given_nothing(raw):
    sql = "SELECT 1 WHERE pg_sleep($1::float8) IS NOT NULL"
    for _ in range(2):
        postgresql.rows(raw, sql, ["0"])
    raw.execute("SET statement_timeout = 50")
    assert postgresql.glance(raw, sql, "5") is None
    assert postgresql.glance(raw, sql, "0") == (1,)


def test_a_transaction_of_the_framework_is_left_to_cursors(raw):
    assert postgresql.can_run(raw)
    raw.autocommit = False
    assert not postgresql.can_run(raw)


# ---- the driver forgets what is prepared ----------------------------------------------------------------------


@pytest.fixture
def forgetful(raw):
    """A connection that has prepared a question, and whose driver has let go of everything prepared since."""
    for _ in range(3):
        postgresql.rows(raw, "SELECT 1", [])
    raw.prepare_threshold = 0
    raw.execute("SELECT 2")
    assert prepared(raw) > 1
    raw.execute("BEGIN")
    raw.execute("ROLLBACK")
    raw.prepare_threshold = NEVER
    assert prepared(raw) == 0
    return raw


def test_what_is_forgotten_is_prepared_again(forgetful):
    for _ in range(3):
        assert postgresql.rows(forgetful, "SELECT 1", []) == [(1,)]
    assert prepared(forgetful) == 1


def test_a_glance_at_what_is_forgotten_is_given_nothing(forgetful):
    assert postgresql.glance(forgetful, "SELECT $1::bigint", "1") is None
    with postgresql.snapshot(forgetful):
        pass
    for _ in range(2):
        postgresql.rows(forgetful, "SELECT $1::bigint", ["1"])
    assert postgresql.glance(forgetful, "SELECT $1::bigint", "1") == (1,)


def test_a_snapshot_begins_by_finding_out(forgetful):
    with postgresql.snapshot(forgetful):
        for _ in range(3):
            assert postgresql.rows(forgetful, "SELECT 1", []) == [(1,)]
    assert forgetful.info.transaction_status.name == "IDLE"


def test_a_snapshot_sees_one_moment(raw, url):
    raw.execute("CREATE TABLE n (n integer)")
    with psycopg.connect(url, autocommit=True) as other, postgresql.snapshot(raw):
        other.execute("INSERT INTO n VALUES (1)")
        assert postgresql.rows(raw, "SELECT n FROM n", []) == []
    assert postgresql.rows(raw, "SELECT n FROM n", []) == [(1,)]


def test_a_snapshot_keeps_what_is_prepared(raw):
    for _ in range(3):
        with postgresql.snapshot(raw):
            postgresql.rows(raw, "SELECT 1", [])
    assert prepared(raw) == 1


def test_a_snapshot_that_cannot_begin_leaves_no_transaction_open(raw, monkeypatch):
    monkeypatch.setattr(postgresql, "_BEGIN_PREPARED", b"BEGIN; SELECT 1 / 0")
    with pytest.raises(psycopg.errors.DivisionByZero), postgresql.snapshot(raw):
        pass
    assert raw.info.transaction_status.name == "IDLE"


def test_what_was_prepared_before_the_first_snapshot_stays(raw):
    for _ in range(2):
        postgresql.rows(raw, "SELECT 1", [])
    with postgresql.snapshot(raw):
        postgresql.rows(raw, "SELECT 1", [])
    assert prepared(raw) == 1
