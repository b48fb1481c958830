"""Stored facts page by page, both ways: each of them once, in order, by the index; and how many there are."""

import time
from itertools import product

import pytest
from django.db import connection
from django.test import RequestFactory

from facts import keyset_pages, store
from facts.keyset_pages import beginning, exactly, listing, search_columns
from facts.models import Signature
from facts.pages.browse import MARKS, turned
from facts.pages.change import _stored_and_gone
from facts.store import Inserts
from facts.wire import Argument, Fact, FactPattern
from policy.core.clock import now
from policy.core.pagination import Cursor, Pager
from policy.values import Value
from tests.facts.test_plans import filled  # noqa: F401  a table that is worth an index
from tests.sampling import together

HOSTILE = [
    "a", "A", "ab", "a%", "a_", "a\\", "a'", 'a"', "a\n", "a\x1f", "%", "_", "\\", "'; DROP TABLE authz_fact; --",
    "é", "e\u0301", "ß", "ss", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff", "\U0010ffff\U0010ffff",
    "a\U0010ffff", "☃", "😀", " ", " a", "a ",
]  # fmt: skip


def fact(predicate: str, *args: str) -> Fact:
    return Fact(predicate, tuple(Value(*arg.split(":", 1)) for arg in args))


def stored(environment, *facts: Fact) -> list[Signature]:
    store.apply(environment.id, [Inserts(list(facts))])
    return list(Signature.objects.select_related("environment").order_by("predicate", "types"))


def pages(steps, size: int = 3) -> list[list[Fact]]:
    found, page = [], listing(steps).page(size)
    while True:
        found.append([met.fact for met in page.rows])
        if not page.has_next:
            return found
        page = listing(steps).page(size, after=page.rows[-1].mark)


def back(steps, size: int = 3) -> list[list[Fact]]:
    """The same pages, from the last one on."""
    page = listing(steps).page(size)
    while page.has_next:
        page = listing(steps).page(size, after=page.rows[-1].mark)
    found = [[met.fact for met in page.rows]]
    while page.has_previous:
        page = listing(steps).page(size, before=page.rows[0].mark)
        found.insert(0, [met.fact for met in page.rows])
    return found


MIXED = [
    *[fact("p", f"U:{one}", f"U:{two}") for one, two in product("abc", "abd")],
    *[fact("q", f"U:{one}", "S:x", f"R:{one}{two}") for one, two in product("ab", "abc")],
    fact("r", "R:a", "U:a", "U:a", "U:a", "U:b"),
    fact("r", "R:a", "U:a", "U:c", "U:a", "U:a"),
    fact("s", "U:z"),
]


SOUGHT = [
    (keyset_pages.EVERY, ""), (exactly("a"), ""), (exactly("a"), "U"), (beginning("a"), ""), (beginning(""), "U"),
    (exactly("?"), ""),
]  # fmt: skip


@together("ids, type_name, size", [(*sought, size) for sought in SOUGHT for size in (1, 2, 3, 7, 100)])
def test_each_fact_is_on_one_page_both_ways(environment, ids, type_name, size):
    kinds = stored(environment, *MIXED)
    steps = search_columns(kinds, ids, type_name)
    if ids == keyset_pages.EVERY:
        wanted = set(MIXED)
    else:
        wanted = {each for each in MIXED if any(meant(value, ids, type_name) for value in each.args)}
    forth = pages(steps, size)
    flat = [each for page in forth for each in page]
    assert len(flat) == len(wanted) and set(flat) == wanted
    assert all(len(page) == size for page in forth[:-1])
    assert [each for page in back(steps, size) for each in page][-len(flat) :] == flat
    assert keyset_pages.count(steps).number == len(wanted)
    assert list(keyset_pages.every(steps)) == flat


def meant(value: Value, ids: keyset_pages.IdRange, type_name: str) -> bool:
    fits = value.id.startswith(ids.low) if ids.open or ids == keyset_pages.EVERY else value.id == ids.low
    return fits and type_name in ("", value.type)


@together("text", HOSTILE)
def test_ids_are_compared_byte_by_byte(environment, text):
    texts = [each for each in HOSTILE if not "\ud800" <= each[0] < "\ue000"]
    kinds = stored(environment, *[fact("p", f"U:{each}", "T:t") for each in texts])
    for ids, fits in ((exactly(text), text.__eq__), (beginning(text), lambda each: each.startswith(text))):
        found = [each.args[0].id for page in pages(search_columns(kinds, ids, "U")) for each in page]
        assert found == sorted(each for each in texts if fits(each))


def test_bounds_of_a_beginning_leave_out_what_no_text_has():
    assert beginning("a\U0010ffff").high == "b"
    assert beginning("\U0010ffff").high is None
    assert beginning("\ud7ff").high == "\ue000"
    assert beginning("") == keyset_pages.EVERY


def test_a_page_goes_on_after_a_fact_that_is_gone(environment):
    kinds = stored(environment, *[fact("p", f"U:{n}") for n in range(9)])
    facts = listing(search_columns(kinds))
    second = facts.page(3, after=facts.page(3).rows[-1].mark)
    mark = second.rows[-1].mark
    store.apply(environment.id, [store.Deletes([pattern(second.rows[-1].fact)])])
    assert [met.fact.args[0].id for met in facts.page(3, after=mark).rows] == ["6", "7", "8"]
    assert [met.fact.args[0].id for met in facts.page(3, before=mark).rows] == ["2", "3", "4"]


def pattern(one: Fact):
    return FactPattern(one.predicate, tuple(Argument(value.type, value.id) for value in one.args))


def test_a_mark_of_elsewhere_leads_to_the_first_page(environment):
    kinds = stored(environment, *[fact("p", f"U:{n}") for n in range(4)])
    steps = search_columns(kinds)
    other = Cursor(MARKS, keyset_pages.Mark((-1, 0), (-1, "x", "", "", "", ""))).token
    for token in (other, Cursor("another list", steps[0].key).token, "not a token"):
        for name in ("after", "before"):
            page, pager = turned(RequestFactory().get("/", {name: token}), steps, lambda fields: f"?{fields}")
            assert [met.fact.args[0].id for met in page.rows] == ["0", "1", "2", "3"] and pager == Pager()


def test_what_has_ended_is_not_met(environment):
    soon = Fact("p", (Value("U", "a"),), now() + 150_000)
    kinds = stored(environment, soon, fact("p", "U:b"))
    steps = search_columns(kinds)
    time.sleep(0.3)
    assert [each.args[0].id for each in keyset_pages.every(steps)] == ["b"]
    assert keyset_pages.count(steps).number == 1
    row = (kinds[0].pk, "a", "", "", "", "")
    assert _stored_and_gone([row], {kinds[0].pk: kinds[0]}) == ([], [Fact("p", soon.args)])


# ---- counts ------------------------------------------------------------------------------------------------------


def test_counts_are_exact_up_to_a_bound_and_true_beyond_it(environment, db, monkeypatch):
    kinds = stored(environment, *[fact("p", f"U:{n}") for n in range(50)])
    steps = search_columns(kinds)
    assert str(keyset_pages.count(steps, 50)) == "50"
    beyond = keyset_pages.count(steps, 49)
    assert beyond.more and beyond.number == 49
    assert [str(each) for each in keyset_pages.counts(steps, 10)] == ["more than 10"]
    assert keyset_pages.Count(1).facts == "1 fact" and keyset_pages.Count(0).facts == "0 facts"
    assert str(keyset_pages.Count(100, True, 123_456)) == "about 120,000"


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_postgresql_says_about_how_many(environment, monkeypatch):
    # All pages, as of any small table. Other tests leave many nearly empty ones, of which a sample says little, and
    # VACUUM cannot remove these while a connection has an old snapshot.
    monkeypatch.setattr(keyset_pages, "_SAMPLE", 1_000_000)
    kinds = stored(
        environment, *[fact("p", f"U:{n}", "S:x") for n in range(4000)], *[fact("q", f"U:{n}") for n in range(1000)]
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE authz_fact")
    for steps, number in (
        (search_columns(kinds), 5000),
        (search_columns(kinds[:1]), 4000),
        (search_columns(kinds[1:]), 1000),
    ):
        about = keyset_pages.count(steps, 100).about
        assert about is not None and abs(about - number) < number / 5


# ---- plans ---------------------------------------------------------------------------------------------------------


BOUNDS = [keyset_pages.EVERY, exactly("a1-5-5"), beginning("a1-5")]


@together("arity, ids, going", product(range(1, 6), BOUNDS, ["first", "forward", "backward"]))
def test_every_page_is_a_search_of_the_index(filled, arity, ids, going):  # noqa: F811
    kind = Signature(pk=arity, predicate="p", types='["' + '","'.join("U" * arity) + '"]')
    row = (arity, *(f"a{n}-5-500" if n < arity else "" for n in range(5)))
    for column in search_columns([kind], ids):
        mark = None if going == "first" else keyset_pages.Mark(column.key, row)
        statement, values = keyset_pages._statement(column, mark, 101, going != "backward")
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN {'QUERY PLAN ' if filled == 'sqlite' else ''}{statement}", values)
            plan = "\n".join(str(line[-1]) for line in cursor.fetchall())
        assert "SCAN" not in plan and "Seq Scan" not in plan, plan
        bounded = ids != keyset_pages.EVERY or mark is not None
        if filled == "sqlite":
            assert "TEMP B-TREE" not in plan and (not bounded or f"a{column.position}" in plan), plan
        elif bounded:
            assert f"a{column.position}" in "".join(line for line in plan.splitlines() if "Index Cond" in line), plan
    assert kind.signature.types == ("U",) * arity
