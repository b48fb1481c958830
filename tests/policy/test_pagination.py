"""Lists in pages, whatever is listed: no row is left out or shown twice, and cursors are this service's own."""

import json

import pytest
from django.core import signing

from policy.core.pagination import Cursor, Listing, Pager, cursor_of, digest_of, key_of

ROWS = list(range(0, 20, 2))
TOKEN = Cursor("of", 1).token


def listing(rows: list[int]) -> Listing[int]:
    return Listing(
        lambda key, most: [row for row in rows if key is None or row > key][:most],
        lambda key, most: [row for row in rows if row < key][-most:],
    )


@pytest.mark.parametrize("size", [1, 3, 5, 10, 11])
def test_pages_lead_forth_and_back(size):
    page, forth = listing(ROWS).page(size), []
    while True:
        forth.append(page.rows)
        if not page.has_next:
            break
        page = listing(ROWS).page(size, after=page.rows[-1])
    assert [row for rows in forth for row in rows] == ROWS
    back = [page.rows]
    while page.has_previous:
        page = listing(ROWS).page(size, before=page.rows[0])
        back.append(page.rows)
    assert set(ROWS) == {row for rows in back for row in rows}
    assert back[-1] == forth[0]


def test_pages_go_on_from_rows_that_are_gone():
    assert listing(ROWS).page(3, after=5).rows == (6, 8, 10)
    assert listing(ROWS).page(3, before=13).rows == (8, 10, 12)
    first = listing(ROWS).page(3, before=3)  # less than a page before it
    assert first.rows == (0, 2, 4) and not first.has_previous


def pager(rows: list[int], **place: int) -> dict[str, dict[str, int]]:
    """The keys in the URLs of other pages."""
    found = listing(rows).page(3, **place).pager("rows", lambda row: row, json.dumps)
    return {
        name: {way: key_of(token, "rows") for way, token in json.loads(text).items()}
        for name, text in found._asdict().items()
        if text
    }


def test_a_page_has_the_addresses_of_those_beside_it():
    assert pager(ROWS) == {"next": {"after": 4}}
    assert pager(ROWS, after=4) == {"first": {}, "previous": {"before": 6}, "next": {"after": 10}}
    assert pager(ROWS, after=12) == {"first": {}, "previous": {"before": 14}}
    assert pager(ROWS, after=18) == {"first": {}}  # what followed is gone
    assert listing(ROWS[:3]).page(3).pager("rows", lambda row: row, str) == Pager()


def test_a_cursor_comes_back_as_it_was_for_its_own_list():
    cursor = Cursor(digest_of("facts", 1), ["é\ud800", None, 2**62], 10, (7, None))
    assert cursor_of(cursor.token) == (cursor.of, cursor.key, 10, [7, None])
    assert key_of(cursor.token, digest_of("facts", 1)) == cursor.key
    assert key_of(cursor.token, digest_of("facts", 2)) is None


@pytest.mark.parametrize(
    "token",
    [
        None, "", "x", 5, ["x"], {"a": 1}, "é:x", "x" * 100_000, TOKEN[:-1], f"x{TOKEN}",
        signing.dumps(["of", 1, 0, []]), signing.Signer(salt="another").sign_object(["of", 1, 0, []]),
    ],
    ids=lambda token: str(token)[:10],
)  # fmt: skip
def test_what_this_service_did_not_write_is_no_cursor(token):
    assert cursor_of(token) is None and key_of(token, "of") is None


def test_a_token_of_another_secret_is_no_cursor(settings):
    token = Cursor("of", 1).token
    settings.SECRET_KEY = "x" * 50
    assert cursor_of(token) is None
