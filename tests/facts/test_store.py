"""What is stored, and in which order."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from authz_project.environments import create_test_environment
from facts import numbering, read, store, table
from facts.store import Deletes, Inserts
from facts.wire import Argument, Fact, FactPattern, batch_from_json, exact_pattern
from policy.core.clock import now
from policy.core.journal import current_offset
from policy.models import Environment
from policy.rules.program import Signature
from policy.values import Value


def role(user: str, name: str, repo: str) -> Fact:
    return Fact("has_role", (Value("User", user), Value("String", name), Value("Repo", repo)))


def stored(environment) -> list[str]:
    return [str(fact) for fact in read.found(environment.id, None, ()).facts]


def test_facts_are_stored_once_each(environment):
    store.apply(environment.id, [Inserts([role("ann", "admin", "r"), role("ann", "admin", "r")])])
    store.apply(environment.id, [Inserts([role("ann", "admin", "r"), role("bob", "admin", "r")])])
    assert stored(environment) == [str(role("ann", "admin", "r")), str(role("bob", "admin", "r"))]


def test_changes_apply_in_order(environment):
    fact = role("ann", "admin", "r")
    exact = FactPattern("has_role", tuple(Argument(value.type, value.id) for value in fact.args))
    store.apply(environment.id, [Inserts([fact]), Deletes([exact])])
    assert stored(environment) == []
    store.apply(environment.id, [Deletes([exact]), Inserts([fact])])
    assert stored(environment) == [str(fact)]


def test_an_iterator_of_changes_begins_when_no_one_else_can_change_facts(environment):
    before, offsets = current_offset(environment.id), []

    def changes():
        offsets.append(current_offset(environment.id))  # the turn has been taken, in this transaction
        yield Inserts([role("ann", "admin", "r")])

    store.apply(environment.id, changes())
    assert offsets == [before + 1]


def test_inserts_of_a_change_that_follow_each_other_count_by_the_last_expiry(environment):
    soon, later = now() + 10**9, now() + 10**10
    fact = role("ann", "admin", "r")
    for expiries in ([soon, later], [later, None], [None, soon]):
        store.apply(environment.id, [Inserts([replace(fact, expires_at=each)]) for each in expiries])
        assert [each.expires_at for each in read.found(environment.id, None, ()).facts] == expiries[1:]


def test_offsets_grow_with_each_change(environment):
    made = [store.apply(environment.id, []), store.apply(environment.id, []), store.clear(environment.id)]
    offsets = [applied.offset for applied in made]
    assert offsets == sorted(set(offsets))


@pytest.mark.parametrize("arity", range(1, 6))
def test_a_wildcard_in_any_place_deletes_what_fits(environment, arity):
    facts = [
        Fact("p", tuple(Value("T", "x" if position == wanted else "y") for position in range(arity)))
        for wanted in range(arity)
    ]
    for position in range(arity):
        store.apply(environment.id, [Inserts(facts)])
        args = tuple(Argument("T", "x") if position == place else Argument() for place in range(arity))
        store.apply(environment.id, [Deletes([FactPattern("p", args)])])
        assert stored(environment) == sorted(str(fact) for index, fact in enumerate(facts) if index != position)


def test_environments_do_not_see_each_other(new_api):
    one, other = new_api("one").environment, new_api("other").environment
    store.apply(one.id, [Inserts([role("ann", "admin", "r")])])
    assert stored(other) == []
    store.clear(other.id)
    assert len(stored(one)) == 1


def test_a_signature_and_the_mark_that_tells_of_it_are_there_together(environment, monkeypatch):
    before = numbering.numbers_as_of(environment.id)
    new = Signature("is_new", ("Repo",))
    texts = iter([numbering.text_of_types(new.types)])  # for looking it up, and no other for inserting it
    monkeypatch.setattr(numbering, "text_of_types", lambda types: next(texts))
    with pytest.raises(StopIteration):
        numbering.signature_number(environment.id, new, 1)
    monkeypatch.undo()
    assert numbering.numbers_as_of(environment.id) == before
    number = numbering.signature_number(environment.id, new, 1)
    after = numbering.numbers_as_of(environment.id)
    assert after.marks != before.marks
    assert after.numbers[new] == number


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_a_copied_environment_has_the_facts_of_one_moment(environment, monkeypatch):
    """A change that is made meanwhile is copied whole or not at all. On SQLite, it waits."""
    facts = [Fact(name, (Value("User", "ann"),)) for name in ("p", "q")]
    store.apply(environment.pk, [Inserts(facts)])
    copy_signature, changes = table.copy_signature, []

    def change() -> None:
        with closing(connection):
            new = [Fact(name, (Value("User", "ben"),)) for name in ("p", "q", "r")]
            store.apply(environment.pk, [Deletes([exact_pattern(fact) for fact in facts]), Inserts(new)])

    def copied(*numbers: int) -> int:
        found = copy_signature(*numbers)
        if not changes:
            with ThreadPoolExecutor(1) as other:
                changes.append(other.submit(change).result(30))
        return found

    monkeypatch.setattr(table, "copy_signature", copied)
    create_test_environment(copied=True)
    assert len(changes) == 1
    assert stored(Environment.objects.exclude(pk=environment.pk).get()) == [str(fact) for fact in facts]


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_copying_an_environment_may_take_longer_than_a_change_waits(environment, settings):
    store.apply(environment.pk, [Inserts([Fact("p", (Value("User", str(number)),)) for number in range(20_000)])])
    settings.WRITE_TIMEOUT = 0.02
    create_test_environment(copied=True)
    assert len(stored(Environment.objects.exclude(pk=environment.pk).get())) == 20_000


def test_facts_with_expiries_take_no_statement_each(environment):
    args = [[{"type": "User", "id": f"u{number}"}] for number in range(50)]
    facts = [{"predicate": "is_guest", "args": each, "expires_at": "2999-01-01T00:00:00Z"} for each in args]
    with CaptureQueriesContext(connection) as statements:
        store.apply(environment.pk, [Inserts(batch_from_json(facts, ""))])
    assert len(statements) < 30
