"""Documents -> rows.

There is no server here: a stand-in for the driver's client records what it is asked for, and hands on documents of the
types that the driver makes.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import bson
import pytest
from pymongo.errors import ConfigurationError, ServerSelectionTimeoutError

from localsql.sync import sources
from localsql.sync.config import ConfigContext, ConfigRejected, DriverMissing, SourceFailed, config_from_text
from localsql.sync.sources import rows_of
from tests.localsql.sync.test_in_step import passed, stored

OID = bson.ObjectId("65f0c0ffee0123456789abcd")


class Collection:
    def __init__(self, documents):
        self.documents, self.asked = documents, None

    def find(self, *args, **options):
        self.asked = ("find", *args)
        return iter(self.documents)

    def aggregate(self, stages, **options):
        self.asked = ("aggregate", stages)
        return iter(self.documents)


class Client:
    def __init__(self, collections):
        self.collections, self.is_closed = collections, False

    def get_default_database(self):
        return self.collections

    def close(self):
        self.is_closed = True


@pytest.fixture
def stand_in(monkeypatch):
    """Makes a collection `staff` of these documents."""

    def make(*documents) -> Collection:
        collection = Collection(documents)
        monkeypatch.setattr(sources, "_client", lambda database: Client({"staff": collection}))
        return collection

    return make


def config(entry: str, key: str = "p(User:_, Org:_)") -> str:
    url = "mongodb://me:s3cret@host/company"
    return f"facts:\n  {key}: {{collection: staff, {entry}}}\ndbs: {{app: {{connection_string: '{url}'}}}}"


def pattern(entry: str, **more):
    return config_from_text(config(entry, **more), ConfigContext(Path())).patterns[0]


def rows(entry: str, **more):
    return list(rows_of(pattern(entry, **more), False))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (OID, "65f0c0ffee0123456789abcd"), ("ß", "ß"), (7, "7"), (7.0, "7"), (7.5, "7.5"),
        (bson.Int64(2**40), str(2**40)), (True, "true"), (None, None),
        (bson.Decimal128("7.50"), "7.5"), (bson.Decimal128("7E+2"), "700"),
        (bson.Binary.from_uuid(UUID(int=10)), str(UUID(int=10))), (UUID(int=10), str(UUID(int=10))),
        (datetime(2026, 11, 3, 14, 2, tzinfo=UTC), "2026-11-03T14:02:00+00:00"),
    ],
)  # fmt: skip
def test_values_become_texts(stand_in, value, shown):
    stand_in({"_id": value, "org": "acme"})
    assert rows("fields: [_id, org]") == [(shown, "acme")]


def test_fields_inside_of_others_and_missing_ones(stand_in):
    collection = stand_in({"who": {"id": 7}, "org": "acme"}, {"who": {}, "org": "acme"}, {"who": 7})
    assert rows("fields: [who.id, org]") == [("7", "acme"), (None, "acme"), (None, None)]
    assert collection.asked == ("find", {}, {"_id": 0, "who.id": 1, "org": 1})


def test_an_array_is_a_row_for_each_element(stand_in):
    stand_in({"_id": 1, "orgs": ["a", "b"]}, {"_id": 2, "orgs": []}, {"_id": 3}, {"_id": 4, "orgs": "c"})
    assert rows("fields: [_id, {name: orgs, is_array: true}]") == [("1", "a"), ("1", "b"), ("4", "c")]
    stand_in({"_id": 1, "orgs": [{"id": "a"}, {"id": "b"}, "none"]})
    assert rows("fields: [_id, {orgs.id: {is_array: true}}]") == [("1", "a"), ("1", "b")]


def test_a_path_through_an_array_that_is_not_said_is_no_id(stand_in):
    stand_in({"_id": 1, "orgs": [{"id": "a"}]})
    assert rows("fields: [_id, orgs.id]") == [("1", "\0a value of type list is not a valid id")]


def test_what_is_asked_of_the_driver(stand_in):
    collection = stand_in()
    rows("fields: [_id, org], query: {find: {age: {$gt: 18}, _id: {$oid: 65f0c0ffee0123456789abcd}}}")
    assert collection.asked[1] == {"age": {"$gt": 18}, "_id": OID}
    rows("fields: [_id, org], find: '{\"active\": true}'")
    assert collection.asked[1] == {"active": True}
    rows("fields: [_id, org], find: {since: {$gte: 2026-11-03T14:02:00Z}}")
    assert collection.asked[1] == {"since": {"$gte": datetime(2026, 11, 3, 14, 2)}}  # in UTC
    for zone in ("09:02:00-05:00", "19:32:00+05:30", "14:02:00"):
        rows(f"fields: [_id, org], find: {{since: {{$gte: 2026-11-03T{zone}}}}}")
        assert collection.asked[1] == {"since": {"$gte": datetime(2026, 11, 3, 14, 2)}}, zone
    rows("fields: [a, a.b]")
    assert collection.asked[2] is None
    rows("fields: [_id, org], aggregate: [{$unwind: $orgs}, {$limit: 5}]")
    assert collection.asked == ("aggregate", [{"$unwind": "$orgs"}, {"$limit": 5}])


def test_documents_are_facts_and_what_is_none_is_told(published, stand_in):
    entry = "fields: [who, role, org]"
    text = config(entry, key="has_role(User:_, String:_, Org:_)")
    stand_in(*[{"who": who, "role": "member", "org": "acme"} for who in ("ben", OID, 7.0, "ben", None)])
    assert passed(published, text, applies=True).is_in_step
    assert {who for who, _, _ in stored(published)} == {"ben", str(OID), "7"}
    stand_in({"who": {"no": "id"}, "role": "member", "org": "acme"})
    (failed,) = passed(published, text, applies=True).failed
    assert "a value of type dict is not a valid id" in failed.reason
    assert len(stored(published)) == 3


def test_a_server_that_is_away_is_said_without_its_password(monkeypatch):
    def away(database):
        raise ServerSelectionTimeoutError(f"cannot reach {database.connection}")

    monkeypatch.setattr(sources, "_client", away)
    with pytest.raises(SourceFailed, match="cannot reach …") as caught:
        rows("fields: [a, b]")
    assert "s3cret" not in str(caught.value)


def test_a_real_client_says_that_nobody_is_there(monkeypatch):
    monkeypatch.setattr(sources, "CONNECT_WITHIN", 0.2)
    found = pattern("fields: [a, b]")
    object.__setattr__(found.database, "connection", "mongodb://me:s3cret@127.0.0.1:1/company")
    with pytest.raises(SourceFailed) as caught:
        list(rows_of(found, False))
    assert "127.0.0.1:1" in str(caught.value) and "s3cret" not in str(caught.value)


def test_a_connection_without_a_database_is_refused(stand_in, monkeypatch):
    class Nameless(Client):
        def get_default_database(self):
            raise ConfigurationError

    monkeypatch.setattr(sources, "_client", lambda database: Nameless({}))
    with pytest.raises(ConfigRejected, match="has no database name; add it, as in"):
        rows("fields: [a, b]")


@pytest.mark.parametrize(
    ("url", "says"),
    [("mongodb://h/d", r'the driver pymongo is not installed; run `pip install "authz-project\[mongodb\]"`'),
     ("mysql://h/d", r'the driver PyMySQL is not installed; run `pip install "authz-project\[mysql\]"`')],
)  # fmt: skip
def test_a_driver_that_is_missing_is_named(monkeypatch, url, says):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(sources, "import_module", missing)
    asked = "collection: staff, fields: [a]" if "mongo" in url else "query: SELECT a FROM t"
    text = f"facts: {{'p(User:_)': {{{asked}}}}}\ndbs: {{app: {{connection_string: '{url}'}}}}"
    with pytest.raises(DriverMissing, match=says):
        list(rows_of(config_from_text(text, ConfigContext(Path())).patterns[0], True))
