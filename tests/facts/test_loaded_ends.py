"""A file that says a fact twice, far apart, with another end: what it says last counts."""

from facts import loading, read
from facts.loading import load
from policy.core import clock
from policy.core.clock import microseconds_of_text, time_of

LATER = "2100-01-01T00:00:00Z"


def test_an_end_that_is_said_later_in_the_file_counts(environment, monkeypatch):
    monkeypatch.setattr(loading, "CHUNK", dict.fromkeys(loading.CHUNK, 1))
    args = [{"type": "User", "id": "ann"}, {"type": "String", "id": "member"}, {"type": "Org", "id": "acme"}]
    fact = {"predicate": "has_role", "args": args}
    loaded = load(environment.id, [(1, fact), (2, fact | {"expires_at": LATER})])
    (stored,) = read.found(environment.id, None, ()).facts
    assert (loaded.inserted, stored.expires_at is None) == (1, False)


def test_an_end_that_comes_while_a_file_is_loaded_is_kept_and_counts_no_more(environment, monkeypatch):
    """All ends of a file are compared with one time, so that which lines are wrong does not depend on its length."""
    monkeypatch.setattr(loading, "CHUNK", dict.fromkeys(loading.CHUNK, 1))
    now = clock.now()
    end = time_of(now - 1).isoformat()
    monkeypatch.setattr(clock, "now", lambda: now - 2)  # when the first line was read, it was to come
    lines = [(number, {"predicate": "p", "args": [{"type": "T", "id": str(number)}]}) for number in range(3)]
    loaded = load(environment.id, [(number, line | {"expires_at": end}) for number, line in lines])
    assert (loaded.inserted, read.found(environment.id, None, ()).facts) == (3, [])
    load(environment.id, [(number, line | {"expires_at": LATER}) for number, line in lines])
    assert [each.expires_at for each in read.found(environment.id, None, ()).facts] == [microseconds_of_text(LATER)] * 3
