"""GET /history, and the use case behind it."""

import random
from collections import defaultdict

import pytest
from django.db import connection
from django.db.models import F
from django.test import RequestFactory

from facts import history, history_pages, read, store
from facts.history import HistoryKey, prune
from facts.models import Signature
from facts.numbering import signature_numbers
from facts.store import Deletes, Inserts
from facts.wire import Argument, Fact, FactPattern
from policy.core.clock import microseconds_of, text_of, time_of
from policy.core.journal import By, Done, Kind, advance, changing, record
from policy.models import Environment, Revision
from policy.moments import MomentNotAvailable, moment_of
from policy.publishing import publish
from policy.values import Value
from tests.waiting import do_before, elsewhere, prune_before

ANN = By("admin ann")


def fact(predicate: str, *args: str) -> Fact:
    return Fact(predicate, tuple(Value(*arg.split(":")) for arg in args))


def exactly(given: Fact) -> FactPattern:
    return FactPattern(given.predicate, tuple(Argument(value.type, value.id) for value in given.args))


ADMIN = fact("has_role", "User:ann", "String:admin", "Repo:a")
MEMBER = fact("member", "User:ann", "Team:t")
OTHER = fact("member", "User:bob", "Team:t")


def insert(environment: Environment, *facts: Fact, by: By = ANN) -> int:
    return store.apply(environment.id, [Inserts(facts)], by).offset


def delete(environment: Environment, *facts: Fact, by: By = ANN) -> int:
    return store.apply(environment.id, [Deletes([exactly(each) for each in facts])], by).offset


def texts(found: list) -> list[str]:
    return [f"{each['predicate']} {' '.join(arg['id'] for arg in each['args'])}" for each in found]


def pages(api, query: str) -> list[dict]:
    """All entries, page by page."""
    found, token = [], ""
    while token is not None:
        body = api.get(f"/history?{query}&page_token={token}").json()
        found += body["results"]
        token = body["next_page_token"]
    return found


# ---- GET /history ----------------------------------------------------------------------------------------------


def test_revisions_come_newest_first_with_what_they_did(api):
    first = insert(api.environment, ADMIN, MEMBER)
    second = delete(api.environment, ADMIN, by=By('key 3 "billing"', "r-1"))
    third = insert(api.environment, ADMIN, OTHER)
    body = api.get("/history").json()
    told = [(each["revision"], texts(each["inserted"]), texts(each["deleted"])) for each in body["results"]]
    assert told == [
        (third, ["has_role ann admin a", "member bob t"], []),
        (second, [], ["has_role ann admin a"]),
        (first, ["has_role ann admin a", "member ann t"], []),
    ]
    entry = body["results"][1]
    made = Revision.objects.get(environment=api.environment, number=second)
    assert microseconds_of(time_of(made.at)) == made.at
    assert {name: entry[name] for name in ("author", "kind", "policy_version")} == {
        "author": 'key 3 "billing"', "kind": "facts", "policy_version": None,
    }  # fmt: skip
    assert entry["at"].endswith("Z") and len(entry["at"]) == len("2026-11-03T14:02:11.123456Z")
    assert body["next_page_token"] is None and body["horizon"] == 0


@pytest.mark.parametrize(
    ("query", "revisions"),
    [
        ("", 3),
        ("predicate=member", 2),
        ("predicate=nothing", 0),
        ("args.0.type=User&args.0.id=ann", 2),
        ("args.0.id=bob", 1),
        ("predicate=has_role&args.1.id=admin", 1),
        ("predicate=has_role&args.2.type=Repo&args.2.id=a", 1),
        ("predicate=member&args.2.type=Team", 0),
    ],
)
def test_the_pattern_is_that_of_facts(api, query, revisions):
    insert(api.environment, ADMIN)
    insert(api.environment, MEMBER)
    insert(api.environment, OTHER)
    assert len(api.get(f"/history?{query}").json()["results"]) == revisions


def test_as_of_a_revision_what_happened_later_is_not_told(api):
    numbers = [insert(api.environment, ADMIN), delete(api.environment, ADMIN), insert(api.environment, ADMIN, MEMBER)]
    at = dict(Revision.objects.filter(environment=api.environment).values_list("number", "at"))

    def told(query: str) -> list[int]:
        return [each["revision"] for each in pages(api, query)]

    for place, number in enumerate(numbers):
        assert told(f"as_of={number}") == numbers[: place + 1][::-1]
        one_by_one = told(f"as_of={number}&page_size=1&predicate=has_role&args.0.id=ann")
        assert one_by_one == numbers[: place + 1][::-1]
    latest = max(number for number in numbers if at[number] <= at[numbers[1]])
    assert told(f"as_of={text_of(at[numbers[1]])}")[0] == latest
    assert told("as_of=0") == []
    for query, reason in (
        ("as_of=77", "as_of: revision 77 does not exist yet"),
        ("as_of=x", "as_of: must be a revision number or a time"),
    ):
        refused = api.get(f"/history?{query}")
        assert refused.status_code == 400 and refused.json()["message"].startswith(reason)


@pytest.mark.parametrize("width", [4, 5])
def test_the_last_places_are_looked_up_too(api, width):
    long = fact("long", *[f"T{place}:x{place}" for place in range(width)])
    insert(api.environment, long)
    delete(api.environment, long)
    found = api.get(f"/history?args.{width - 1}.id=x{width - 1}").json()["results"]
    assert [(len(each["inserted"]), len(each["deleted"])) for each in found] == [(0, 1), (1, 0)]


def test_the_policy_is_the_one_from_then_on(api):
    publish(api.environment.id, OPEN, None)
    insert(api.environment, MEMBER)
    assert [each["policy_version"] for each in api.get("/history").json()["results"]] == [1]


OPEN = 'actor User {}\nresource Team {}\nallow(u: User, "x", t: Team) if member(u, t);\n'


def test_pages_follow_each_other_inside_a_revision_too(api):
    many = [fact("member", f"User:u{number:03}", f"Team:{number % 7}") for number in range(60)]
    first = insert(api.environment, *many)
    second = delete(api.environment, *many[10:30])
    third = insert(api.environment, *many[5:20])
    whole, cut = pages(api, "page_size=10000"), pages(api, "page_size=7")
    assert [len(each["inserted"]) + len(each["deleted"]) for each in whole] == [10, 20, 60]
    joined = defaultdict(list)
    for each in cut:
        assert len(each["inserted"]) + len(each["deleted"]) <= 7
        joined[each["revision"]] += [*each["inserted"], *each["deleted"]]
    assert list(joined) == [third, second, first]
    assert list(joined.values()) == [[*each["inserted"], *each["deleted"]] for each in whole]


def test_a_page_that_is_continued_does_not_shift(api):
    insert(api.environment, *[fact("member", f"User:{number}", "Team:t") for number in range(8)])
    body = api.get("/history?page_size=5").json()
    insert(api.environment, OTHER)
    store.clear(api.environment.id)
    rest = api.get(f"/history?page_token={body['next_page_token']}").json()
    assert [len(each["results"][0]["inserted"]) for each in (body, rest)] == [5, 3]
    assert rest["next_page_token"] is None and len(rest["results"]) == 1


@pytest.mark.parametrize("size", ["0", "-1", "10001", "x", "1.5", "٣", "99999999999999999999"])
def test_a_size_that_is_none_is_refused(api, size):
    answer = api.get(f"/history?page_size={size}")
    assert answer.status_code == 400
    assert answer.json()["message"] == "page_size: must be an integer from 1 to 10,000"


def test_a_token_is_of_one_pattern_and_environment(new_api):
    mine, other = new_api("mine"), new_api("other")
    for each in (mine, other):
        insert(each.environment, MEMBER, OTHER)
    token = mine.get("/history?page_size=1").json()["next_page_token"]
    assert mine.get(f"/history?page_token={token}").status_code == 200
    refused = [
        mine.get(f"/history?predicate=member&page_token={token}"),
        mine.get(f"/history?args.0.id=ann&page_token={token}"),
        mine.get(f"/history?page_token={token}x"),
        mine.get("/history?page_token=x"),
        other.get(f"/history?page_token={token}"),
    ]
    said = "page_token: is not a valid page token for this history; start again without `page_token`"
    assert [(each.status_code, each.json()["message"]) for each in refused] == [(400, said)] * 5


def test_environments_see_their_own(new_api):
    mine, other = new_api("mine"), new_api("other")
    insert(mine.environment, MEMBER)
    assert other.get("/history").json()["results"] == []


def test_a_key_is_needed(api):
    assert api.get("/history", Authorization="Bearer e_default_no").status_code == 401
    assert api.get("/history?args.0.id=a%00b").status_code == 400


def set_end(environment: Environment, given: Fact, end: int | None, by: By = ANN) -> int:
    """Change a fact's end, as a revision of its own."""
    number = signature_numbers(environment.id)[given.signature]
    ids = [value.id for value in given.args]
    row = (number, *ids, *[""] * (5 - len(ids)))
    with changing():
        turn = advance(environment.id)
        with connection.cursor() as cursor:
            names = "sig, a0, a1, a2, a3, a4"
            key = "sig = %s AND a0 = %s AND a1 = %s AND a2 = %s AND a3 = %s AND a4 = %s"
            cursor.execute(
                f"INSERT INTO authz_past_fact ({names}, since, until, expires_at) SELECT {names}, since, %s, expires_at"
                f" FROM authz_fact WHERE {key}",
                [turn.offset, *row],
            )
            cursor.execute(f"UPDATE authz_fact SET since = %s, expires_at = %s WHERE {key}", [turn.offset, end, *row])
        record(environment.id, [Done(turn.offset, Kind.FACTS, by, turn.policy_version_id, 1, 1)])
    return turn.offset


END = 1_796_083_200_000_000  # 2026-12-01


def test_another_end_is_an_insert_with_its_end(api):
    insert(api.environment, MEMBER)
    set_end(api.environment, MEMBER, END)
    set_end(api.environment, MEMBER, None)
    delete(api.environment, MEMBER)
    told = [
        ([each.get("expires_at") for each in entry["inserted"]], [each.get("expires_at") for each in entry["deleted"]])
        for entry in pages(api, "page_size=1")
    ]
    assert told == [([], [None]), ([None], []), (["2026-12-01T00:00:00Z"], []), ([None], [])]


def test_what_was_before_the_horizon_is_not_told(api):
    insert(api.environment, MEMBER)
    second = delete(api.environment, MEMBER)
    third = insert(api.environment, OTHER)
    Environment.objects.filter(pk=api.environment.pk).update(horizon=second)
    body = api.get("/history").json()
    assert ([each["revision"] for each in body["results"]], body["horizon"]) == ([third], second)


# ---- beside a prune ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reads", ["all", "kind", "value", "revision"])
@pytest.mark.parametrize("name", ["_changes", "revisions_of"])
def test_all_above_the_horizon_that_is_told_is_told(environment, monkeypatch, name, reads):
    """The horizon moves, and rows are dropped, between any two statements of an answer."""
    numbers = [insert(environment, MEMBER, ADMIN), delete(environment, MEMBER), insert(environment, OTHER)]
    given = (environment.id, 10)
    pruned = prune_before(monkeypatch, history, name)
    match reads:
        case "all":
            found = history.of_pattern(given[0], None, (), 10)
        case "kind":
            found = history.of_kinds(given[0], signature_numbers(environment.id), (), 10)
        case "value":
            found = history.of_value(given[0], Value("Team", "t"), 10)
        case "revision":
            found, numbers = history.of_revision(given[0], numbers[1], 10), numbers[1:2]
    assert pruned and found.horizon == 0
    assert [each.revision.number for each in found.entries] == numbers[::-1]
    assert history.of_pattern(given[0], None, (), 10).entries == ()


PAGES = {
    "timeline": [(history_pages, "earlier_than")],
    "revision": [(history, "_changes"), (history, "revisions_of"), (history_pages, "earlier_than")],
    "fact": [(history, "_changes"), (history, "revisions_of"), (history_pages, "latest_periods")],
    "kind": [(history, "_changes"), (history, "revisions_of"), (history_pages, "_shown")],
    "value": [(history, "_changes"), (history, "revisions_of"), (history_pages, "_shown")],
}


def shown_on(page: str, revision: Revision, kind: Signature) -> dict[str, object]:
    """What a page of the admin shows."""
    request, where = RequestFactory().get("/"), revision.environment
    match page:
        case "timeline":
            return history_pages.timeline(request, where)
        case "revision":
            return history_pages.revision_page(request, revision)
        case "fact":
            return history_pages.facts_page(request, kind, [arg.id for arg in MEMBER.args])
        case "kind":
            return history_pages.facts_page(request, kind, [])
    return history_pages.value_page(request, where, MEMBER.args[0])


@pytest.mark.parametrize(("page", "place"), [(page, place) for page, places in PAGES.items() for place in places])
@pytest.mark.parametrize("does", ["change", "prune"])
def test_a_page_of_history_is_of_one_moment(environment, monkeypatch, page, place, does):
    """Facts change, or their history is dropped, between any two statements of the page."""
    insert(environment, MEMBER)
    delete(environment, MEMBER)
    newest = insert(environment, MEMBER, ADMIN)
    revision, kind = Revision.objects.get(number=newest), Signature.objects.get(predicate=MEMBER.predicate)
    monkeypatch.setattr(history_pages, "REVISIONS", 2)
    before = shown_on(page, revision, kind)

    def act() -> None:
        if does == "prune":
            prune(0)
            return
        delete(environment, MEMBER)
        insert(environment, OTHER)

    with monkeypatch.context() as patched:
        done = do_before(patched, *place, act)
        meanwhile = shown_on(page, revision, kind)
    assert done and meanwhile == before
    assert shown_on(page, revision, kind) != before


def test_signatures_that_come_while_a_history_is_read_are_not_half_of_it(environment, monkeypatch):
    insert(environment, MEMBER)
    listed = history.signature_numbers

    def and_then(environment_id: int):
        found = listed(environment_id)
        elsewhere(lambda: insert(environment, OTHER, fact("p", "T:x")))
        return found

    monkeypatch.setattr(history, "signature_numbers", and_then)
    (entry,) = history.of_pattern(environment.id, None, (), 10).entries
    assert [each.fact for each in entry.inserted] == [MEMBER]


@pytest.mark.parametrize("path", ["/facts?as_of={}", "/history?as_of={}"])
def test_facts_as_of_what_is_dropped_meanwhile_are_not_shown_in_part(api, monkeypatch, path):
    first = insert(api.environment, MEMBER, ADMIN)
    delete(api.environment, MEMBER)
    pruned = prune_before(monkeypatch, *((read, "_find") if "facts" in path else (history, "_changes")))
    answer = api.get(path.format(first))
    assert pruned
    if answer.status_code == 200:
        assert len(answer.json()["results"][0]["inserted"]) == 2
    else:
        assert answer.status_code == 400 and "is no longer available" in answer.json()["message"]


def test_a_dump_as_of_what_is_dropped_meanwhile_is_whole(environment, monkeypatch):
    first = insert(environment, MEMBER, ADMIN)
    delete(environment, MEMBER)
    moment = moment_of(environment.id, first, needs_policy=False)
    assert prune_before(monkeypatch, read, "_selected_then") == []
    assert len(list(read.every(environment.id, moment))) == 2
    with pytest.raises(MomentNotAvailable, match="is no longer available"):
        list(read.every(environment.id, moment))


def test_a_dump_has_no_part_of_a_change_that_is_made_meanwhile(environment, monkeypatch):
    insert(environment, MEMBER)
    more = fact("of_a_new_signature", "User:ann")
    do_before(monkeypatch, read, "_selected", lambda: insert(environment, OTHER, more))
    assert list(read.every(environment.id)) == [MEMBER]
    assert set(read.every(environment.id)) == {MEMBER, OTHER, more}


# ---- the use case ----------------------------------------------------------------------------------------------


def test_what_many_signatures_had_is_put_in_one_order(environment):
    numbers = [insert(environment, fact("p", f"T{place % 130}:x{place}")) for place in range(260)]
    found, after = [], None
    while after is not None or not found:
        page = history.of_pattern(environment.id, None, (), 33, after)
        found += [entry.revision.number for entry in page.entries]
        after = page.more
    assert found == numbers[::-1]


def test_one_revision_is_told_in_pages(environment):
    insert(environment, MEMBER)
    second = insert(environment, ADMIN, OTHER)
    insert(environment, fact("p", "T:x"))
    first = history.of_revision(environment.id, second, 1)
    rest = history.of_revision(environment.id, second, 1, first.more)
    assert [[each.fact for each in page.entries[0].inserted] for page in (first, rest)] == [[OTHER], [ADMIN]]
    assert isinstance(first.more, HistoryKey) and rest.more is None
    assert history.of_revision(environment.id, 99, 1).entries == ()


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_replayed_give_the_stored_facts(environment, seed):
    """From nothing, what is told in order leads to what is stored, for every pattern."""
    rng = random.Random(seed)
    universe = [fact("p", f"A:{x}", f"B:{y}") for x in range(4) for y in range(3)]
    universe += [fact("q", f"A:{x}") for x in range(4)]
    for _ in range(40):
        changes = []
        for _ in range(rng.randint(1, 4)):
            some = rng.sample(universe, rng.randint(1, 5))
            pattern = FactPattern("p", (Argument("A", str(rng.randint(0, 3))), Argument("B")))
            deletes = Deletes([pattern] if rng.random() < 0.2 else [exactly(each) for each in some])
            changes.append(Inserts(some) if rng.random() < 0.6 else deletes)
        store.apply(environment.id, changes)
    for predicate, args in (
        (None, ()),
        ("p", ()),
        (None, (Argument("A", "2"),)),
        ("p", (Argument(), Argument("B", "1"))),
    ):
        entries, after = [], None
        while True:
            page = history.of_pattern(environment.id, predicate, args, rng.randint(1, 9), after)
            entries += page.entries
            after = page.more
            if after is None:
                break
        held: set[Fact] = set()
        for entry in reversed(entries):
            assert not held & {each.fact for each in entry.inserted}
            assert held >= {each.fact for each in entry.deleted}
            held = held - {each.fact for each in entry.deleted} | {each.fact for each in entry.inserted}
        assert held == set(read.found(environment.id, predicate, args).facts)


# ---- when single facts were there --------------------------------------------------------------------------------


def row_of(environment: Environment, given: Fact) -> tuple:
    ids = [value.id for value in given.args]
    return (signature_numbers(environment.id)[given.signature], *ids, *[""] * (5 - len(ids)))


def told(environment: Environment, given: Fact, revision: int | None = None) -> str | None:
    found = history.latest_periods(environment.id, [row_of(environment, given)], revision)
    if not found:
        return None
    (period,) = found.values()
    return history.until_text(period) if period.until else history.since_text(period)


def minute_of(environment: Environment, number: int) -> str:
    return history.minute(Revision.objects.get(environment=environment, number=number).at)


def test_what_is_there_is_told_since_when(environment):
    first = insert(environment, MEMBER, by=By('key 3 "billing"'))
    insert(environment, MEMBER, OTHER)
    assert told(environment, MEMBER) == f'since {minute_of(environment, first)} by key 3 "billing" (revision {first})'


def test_what_was_there_is_told_until_when(environment):
    insert(environment, MEMBER)
    delete(environment, MEMBER)
    insert(environment, MEMBER)
    last = delete(environment, MEMBER)
    when = f"{last}, {minute_of(environment, last)}"
    assert told(environment, MEMBER) == f"stored until revision {when}, deleted by admin ann"
    assert history.latest_periods(environment.id, [(row_of(environment, MEMBER)[0], "zoe", "t", "", "", "")]) == {}


def test_as_of_a_revision_the_last_that_had_begun_counts(environment):
    numbers = [change(environment, MEMBER) for change in (insert, delete, insert, delete)]
    row = row_of(environment, MEMBER)
    found = [history.latest_periods(environment.id, [row], number).get(row) for number in range(numbers[-1] + 1)]
    begun = [period and (period.since.revision, period.until and period.until.revision) for period in found]
    assert begun == [None, (1, None), (1, 2), (3, None), (3, 4)]


def test_what_was_there_before_revisions_says_so(environment):
    insert(environment, MEMBER)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE authz_fact SET since = 0 WHERE sig = %s", [row_of(environment, MEMBER)[0]])
    Environment.objects.filter(pk=environment.pk).update(horizon=17)
    assert told(environment, MEMBER) == "since before revision 17"


def test_a_revision_that_is_dropped_is_told_by_its_number(environment):
    number = insert(environment, MEMBER)
    Revision.objects.filter(environment=environment).delete()
    assert told(environment, MEMBER) == f"since revision {number}"


def test_ends_are_told(environment):
    insert(environment, MEMBER)
    number = set_end(environment, MEMBER, END)
    since = f"since {minute_of(environment, number)} by admin ann (revision {number})"
    assert told(environment, MEMBER) == f"{since}, until 2026-12-01T00:00Z"
    set_end(environment, MEMBER, END + 3_600_000_000)
    assert told(environment, MEMBER).endswith(", until 2026-12-01T01:00Z")
    last = delete(environment, MEMBER)
    assert told(environment, MEMBER).endswith("deleted by admin ann")
    Revision.objects.filter(environment=environment, number=last).update(at=END + 4_000_000_000)
    assert told(environment, MEMBER) == "expired 2026-12-01T01:00Z"


def test_many_are_looked_up_by_few_statements(environment, django_assert_num_queries):
    many = [fact("member", f"User:{number}", "Team:t") for number in range(300)]
    insert(environment, *many)
    delete(environment, *many[:100])
    rows = [(*row_of(environment, many[0])[:1], str(number), "t", "", "", "") for number in range(350)]
    with django_assert_num_queries(3):
        found = history.latest_periods(environment.id, rows)
    assert len(found) == 300 and sum(each.until is None for each in found.values()) == 200


def test_times_of_revisions_never_go_back(api):
    """Even where the database server's clock does, as after a failover: `as_of` a time names one revision."""
    for number in range(3):  # with a new signature, and then in one statement
        user = {"predicate": "has_role", "args": [
            {"type": "User", "id": f"u{number}"}, {"type": "String", "id": "admin"}, {"type": "Repo", "id": "a"},
        ]}  # fmt: skip
        assert api.post("/facts", user).status_code == 200
        if not number:
            Revision.objects.update(at=F("at") + 600_000_000)
    times = list(Revision.objects.order_by("number").values_list("at", flat=True))
    assert len(times) >= 3 and times == sorted(times)
