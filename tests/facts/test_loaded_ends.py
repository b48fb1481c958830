"""A file that says a fact twice, far apart, with another end: what it says last counts."""

from facts import bulk, read
from facts.bulk import load

LATER = "2100-01-01T00:00:00Z"


def test_an_end_that_is_said_later_in_the_file_counts(environment, monkeypatch):
    monkeypatch.setattr(bulk, "CHUNK", 1)
    args = [{"type": "User", "id": "ann"}, {"type": "String", "id": "member"}, {"type": "Org", "id": "acme"}]
    fact = {"predicate": "has_role", "args": args}
    loaded = load(environment.id, [(1, fact), (2, fact | {"expires_at": LATER})])
    (stored,) = read.find(environment.id, None, ())
    assert (loaded.inserted, stored.expires_at is None) == (1, False)
