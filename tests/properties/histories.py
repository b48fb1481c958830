"""Random histories: what was answered once is answered again as of then, and is what the rules say of then.

for outcome in outcomes(Random(7), 7, new_key):
    assert not outcome.fault, outcome

A history is a row of changes of one environment, each a revision: batches, deletes by patterns, loads, clearings,
policies, writers that share a commit, facts that end. After each, some questions are asked. In the end each is asked
as of its revision, by number, by a time and now and then by another policy. Facts, and how many were inserted and
deleted, are held against a plain model.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from random import Random
from typing import Any
from urllib.parse import urlencode

from django.db import connection
from rest_framework.test import APIClient

from facts import loading, table
from facts.models import Signature as KindOfFact
from facts.numbering import signature_number
from facts.table import fact_table
from facts.wire import rows_of
from policy.core.clock import text_of
from policy.core.journal import By, Done, Kind, advance, changing, record
from policy.language import parse
from policy.language.source import Source
from policy.models import Environment, PolicyVersion, Revision, new_moment
from policy.publishing import activate
from policy.rules import compile_source
from policy.rules.program import Program, Signature
from policy.values import PRIMITIVES, STRING, Value
from tests.checks.proofs import Truth, clauses_by_line, faults_of
from tests.properties import ask_adapter
from tests.properties.ask_adapter import Caller, Fact, PastLimit, PolicyRefused
from tests.properties.differences import MODEST
from tests.properties.patience import TookTooLong, at_most
from tests.properties.questions import (
    Actions,
    Ask,
    Authorize,
    AuthorizeEach,
    AuthorizeResources,
    Evaluate,
    Explain,
    List,
    Meaning,
    QueryFacts,
    Question,
    Refused,
    expected,
    meaning,
    predicates_in,
    values_in,
)
from tests.properties.random_policies import Case, is_policy, random_case, smaller
from tests.properties.written import some_case
from tests.reference import Row, World, model_of, unmentioned

STEPS = (8, 18)  # changes of a history, at least and at most
EACH = 14  # questions after each
WRITERS = 4  # at once
BLUR = 3_000  # microseconds that clocks may differ by
STANDING = {"allow", "has_permission", "has_role", "has_relation"}
PATIENCE = 5  # seconds for the oracle to know a revision
HOUR = 3_600_000_000
Stored = Mapping[Fact, int | None]  # when each ends, in microseconds
Batch = list[tuple[str, list]]  # inserts of facts, deletes of patterns


# ---- what there was ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Policy:
    """A version, as a program and as what the oracle reads."""

    number: int
    text: str

    @cached_property
    def program(self) -> Program:
        return compile_source(Source(self.text))

    @cached_property
    def tree(self) -> Any:
        return parse(Source(self.text))

    @cached_property
    def clauses(self) -> Any:
        return clauses_by_line(self.tree, self.text)

    @property
    def reads_the_clock(self) -> bool:
        return "@current_unix_time" in self.text

    def useful(self, facts: Collection[Fact]) -> list[Fact]:
        return [fact for fact in facts if self.program.accepts(fact[0], types_of(fact))]

    def knows(self, ask: Ask) -> bool:
        kinds = {value.type for value in values_in(ask)} | types_in(ask)
        known = set(self.program.types) | set(PRIMITIVES)
        return predicates_in(ask) <= self.program.predicates | STANDING and kinds <= known


@dataclass(frozen=True)
class State:
    """What was stored from a revision on, and the policy."""

    number: int
    story: str
    kind: Kind
    stored: Stored
    policy: Policy
    inserted: int
    deleted: int

    def live(self, at: int) -> list[Fact]:
        return [fact for fact, end in self.stored.items() if end is None or end > at]

    def is_steady(self, start: int, stop: int) -> bool:
        """Whether no fact ended in between."""
        return not any(end is not None and start - BLUR <= end <= stop + BLUR for end in self.stored.values())


@dataclass(frozen=True)
class KeptAnswer:
    """A question, and what was answered at its revision."""

    number: int
    question: Question
    said: Any
    asked_at: int
    answered_at: int


@dataclass(frozen=True)
class Outcome:
    kind: str
    fault: str = ""
    is_moved: bool = False  # another answer than now
    is_some: bool = False  # not nothing


def types_of(fact: Fact) -> tuple[str, ...]:
    return tuple(value.type for value in fact[1])


def types_in(ask: Ask) -> set[str]:
    match ask:
        case List(_, _, name):
            return {name}
        case QueryFacts(_, pattern):
            return {kind for kind, _ in pattern if kind is not None}
        case Evaluate(_, constraints):
            return {kind for _, kind, _ in constraints}
    return set()


def microseconds() -> int:
    return time.time_ns() // 1000


# ---- making history ------------------------------------------------------------------------------------------------


@dataclass
class History:
    """An environment whose changes are made here, and known."""

    rng: Random
    case: Case
    others: Sequence[str]  # texts of other policies
    pool: Sequence[Fact]
    caller: Caller
    environment_id: int
    states: dict[int, State] = field(default_factory=dict)
    kept: list[KeptAnswer] = field(default_factory=list)
    likely: list[Question] = field(default_factory=list)
    tally: Counter[str] = field(default_factory=Counter)

    @property
    def now(self) -> State:
        return self.states[max(self.states)]

    def play(self, steps: int) -> None:
        self.publish(self.case.policy)
        fitting = self.now.policy.useful(self.case.facts)
        self.batch([("inserts", self.rng.sample(fitting, len(fitting) * 4 // 5))])
        self.true_goals()
        moves = (
            self.insert, self.insert, self.delete, self.by_pattern, self.mixed, self.mixed, self.together,
            self.together, self.load, self.clear, self.other_policy, self.go_back, self.ends, self.ends, self.sweep,
        )  # fmt: skip
        for _ in range(steps):
            move = self.rng.choice(moves)
            if move == self.clear and self.rng.random() < 0.5:
                continue
            move()
            self.tally[move.__name__] += 1
            if move in (self.other_policy, self.go_back):
                self.true_goals()
            self.ask_some()

    def note(self, number: int, story: str, kind: Kind, stored: Stored, policy: Policy | None = None) -> None:
        before = self.now.stored if self.states else {}
        missing = object()
        inserted = sum(before.get(fact, missing) != end for fact, end in stored.items())
        deleted = sum(stored.get(fact, missing) != end for fact, end in before.items())
        assert number not in self.states, f"revision {number} came twice"
        self.states[number] = State(
            number, story, kind, dict(stored), policy or self.now.policy, inserted, deleted
        )  # fmt: skip

    # ---- facts ---------------------------------------------------------------------------------------------------

    def some_new(self, most: int) -> list[Fact]:
        """Facts that may be stored; perhaps they are already, but without an end."""
        ending = {fact for fact, end in self.now.stored.items() if end is not None}
        useful = [fact for fact in self.now.policy.useful(self.pool) if fact not in ending]
        return self.rng.sample(useful, min(len(useful), self.rng.randint(1, most)))

    def some_stored(self, most: int) -> list[Fact]:
        stored = sorted(self.now.stored)
        return self.rng.sample(stored, min(len(stored), self.rng.randint(1, most)))

    def some_known(self, most: int) -> list[Fact]:
        return [*self.some_stored(most), *self.rng.sample(self.pool, min(len(self.pool), self.rng.randint(0, 2)))]

    def insert(self) -> None:
        self.batch([("inserts", self.some_new(6))])

    def delete(self) -> None:
        self.batch([("deletes", [exactly(fact) for fact in self.some_known(4)])])

    def by_pattern(self) -> None:
        self.batch([("deletes", [self.pattern(fact) for fact in self.some_known(2)])])

    def mixed(self) -> None:
        self.batch(self.some_batch())

    def some_batch(self) -> Batch:
        """What is deleted is often inserted again, and the other way round."""
        ending = {fact for fact, end in self.now.stored.items() if end is not None}
        few = [*self.some_new(4), *self.some_known(3)]
        few = [fact for fact in self.now.policy.useful(few) if fact not in ending]
        parts: Batch = []
        for _ in range(self.rng.randint(1, 4)):
            chosen = self.rng.sample(few, self.rng.randint(0, len(few)))
            if self.rng.random() < 0.5:
                parts.append(("inserts", chosen))
            else:
                parts.append(("deletes", [self.rng.choice((exactly, exactly, self.pattern))(fact) for fact in chosen]))
        return parts

    def pattern(self, fact: Fact) -> Fact:
        """The fact with some arguments open: any id, or anything."""
        predicate, row = fact
        openings = (lambda v: v, lambda v: v, lambda v: Value(v.type, None), lambda v: None)
        return predicate, tuple(self.rng.choice(openings)(value) for value in row)

    def batch(self, parts: Batch) -> None:
        number = sent(self.caller.key, parts)
        self.note(number, f"batch {told(parts)}", Kind.FACTS, changed(self.now.stored, parts))

    def together(self) -> None:
        """Writers at the same time: whoever comes first has the lower number."""
        batches = []
        for _ in range(WRITERS):
            exact = [("inserts", self.some_new(3)), ("deletes", [exactly(fact) for fact in self.some_known(3)])]
            batches.append([*self.rng.sample(exact, self.rng.randint(1, 2)), *exact[: self.rng.randint(0, 1)]])
        shared = self.rng.choice(batches)
        batches = [shared if self.rng.random() < 0.3 else each for each in batches]

        def send(parts: Batch) -> int:
            try:
                return sent(self.caller.key, parts)
            finally:
                connection.close()

        with ThreadPoolExecutor(WRITERS) as threads:
            numbers = list(threads.map(send, batches))
        for number, parts in sorted(zip(numbers, batches), key=lambda each: each[0]):
            self.note(number, f"together {told(parts)}", Kind.FACTS, changed(self.now.stored, parts))

    def load(self) -> None:
        facts = self.some_new(10)
        facts += facts[:2]
        loading.load(self.environment_id, list(enumerate(map(json_of, facts))))
        parts: Batch = [("inserts", facts)]
        if (number := self.offset()) not in self.states:  # else all of them were stored already
            self.note(number, f"load {told(parts)}", Kind.LOAD, changed(self.now.stored, parts))

    def clear(self) -> None:
        _, number = post(self.caller.key, "/clear_data", {})
        self.note(number, "clear", Kind.CLEAR, {})

    def offset(self) -> int:
        return Environment.objects.values_list("offset", flat=True).get(pk=self.environment_id)

    # ---- policies ------------------------------------------------------------------------------------------------

    def publish(self, text: str) -> None:
        _, number = post(self.caller.key, "/policy", {"src": text, "filename": ""})
        if number not in self.states:
            version = PolicyVersion.objects.filter(environment_id=self.environment_id).order_by("-number")[0]
            stored = self.now.stored if self.states else {}
            self.note(number, f"policy {version.number}", Kind.POLICY, stored, Policy(version.number, version.source))

    def other_policy(self) -> None:
        if self.others:
            self.publish(self.rng.choice(self.others))

    def go_back(self) -> None:
        policy = self.rng.choice([state.policy for state in self.states.values()])
        number = activate(self.environment_id, policy.number).offset
        if number not in self.states:
            self.note(number, f"back to policy {policy.number}", Kind.POLICY, self.now.stored, policy)

    # ---- ends ----------------------------------------------------------------------------------------------------

    def ends(self) -> None:
        """Facts that are given an end: soon, late, or none again."""
        stored = dict(self.now.stored)
        soon = microseconds() + self.rng.choice((20_000, 100_000, 400_000))
        new = [(fact, self.rng.choice((soon, soon, soon + HOUR, None))) for fact in self.some_stored(4)]
        stored.update(new)
        number_of = partial(signature_number, self.environment_id, revision=0)
        rows = {rows_of([wire_fact(fact)], number_of, 0)[0][:6]: end for fact, end in new}
        with changing():
            turn = advance(self.environment_id)
            if rows:
                fact_table().end([(*row, turn.offset) for row in rows])
                fact_table().insert([(*row, turn.offset, end) for row, end in rows.items()])
                self.mark([row[0] for row in rows])
                table.settle({row[0] for row in rows}, turn.offset)
                changes = table.changed({row[0] for row in rows}, turn.offset, turn.offset)[turn.offset]
                done = Done(turn.offset, Kind.FACTS, By("command ends"), turn.policy_version_id, changes.inserted,
                            changes.deleted)  # fmt: skip
            else:
                done = Done(turn.offset, Kind.FACTS, By(), turn.policy_version_id)
            record(self.environment_id, [done])
        self.note(turn.offset, f"ends {new}", Kind.FACTS, stored)

    def mark(self, numbers: Sequence[int]) -> None:
        """Some of their facts may end from now on."""
        KindOfFact.objects.filter(pk__in=numbers).update(may_end=True)
        marks = {"signature_mark": new_moment(), "ends_mark": new_moment()}
        Environment.objects.filter(pk=self.environment_id).update(**marks)

    def sweep(self) -> None:
        """What has ended becomes past."""
        if self.rng.random() < 0.5:
            time.sleep(0.05)
        at = microseconds() - BLUR
        gone = [fact for fact, end in self.now.stored.items() if end is not None and end <= at]
        with changing():
            turn = advance(self.environment_id)
            signatures = {Signature(fact[0], types_of(fact)) for fact in gone}
            kinds = {signature_number(self.environment_id, each, turn.offset) for each in signatures}
            ended = sum(
                fact_table().end_all("sig = %s AND expires_at <= %s", (kind, at), turn.offset) for kind in kinds
            )
            done = Done(turn.offset, Kind.EXPIRY, By("expiry"), turn.policy_version_id, 0, ended)
            record(self.environment_id, [done])
        stored = {fact: end for fact, end in self.now.stored.items() if fact not in gone}
        self.note(turn.offset, "sweep", Kind.EXPIRY, stored)

    # ---- asking --------------------------------------------------------------------------------------------------

    def questions(self) -> list[Question]:
        made = list(self.case.questions)
        goals = [Question(Explain(*goal), self.rng.random() < 0.3) for goal in self.case.goals]
        asks = [each.ask for each in made]
        checks = [(ask.actor, ask.action, ask.resource) for ask in asks if isinstance(ask, Authorize)]
        goals += [Question(Explain("allow", (a, Value(STRING, name), r)), False) for a, name, r in checks]
        if checks:
            made.append(Question(AuthorizeEach(tuple(checks)), self.rng.random() < 0.3))
        return [each for each in (*made, *goals) if self.now.policy.knows(each.ask)]

    def true_goals(self) -> None:
        """Questions about what the oracle says is true now, since most of those made up at random are about nothing."""
        policy, facts = self.now.policy, self.now.policy.useful(self.now.stored)
        world, model = World.of(policy.tree, facts, (), microseconds() // 1_000_000), {}
        with suppress(TookTooLong), at_most(PATIENCE):
            model = model_of(policy.tree, facts, world)
        rows = [(name, row) for (name, _), rows in model.items() for row in rows if is_mentioned(row)]
        derived = sorted(set(rows) - set(facts))
        allowed = [row for name, row in derived if name == "allow" and len(row) == 3 and row[1].type == STRING]
        for actor, action, resource in self.rng.sample(allowed, min(len(allowed), 4)):
            asks = (
                Authorize(actor, action.id, resource), List(actor, action.id, resource.type),
                Actions(actor, resource, self.rng.random() < 0.5),
                Explain("allow", (actor, action, resource)), AuthorizeResources(actor, action.id, (resource, actor)),
                AuthorizeEach(((actor, action.id, resource), (resource, action.id, actor))),
            )  # fmt: skip
            self.likely += [Question(ask, self.rng.random() < 0.2) for ask in self.rng.sample(asks, 3)]
        for name, row in self.rng.sample(derived, min(len(derived), 3)):
            names = [f"v{place}" for place in range(len(row))]
            ids = [(value.id,) if self.rng.random() < 0.7 else None for value in row]
            limits = tuple((each, value.type, some) for each, value, some in zip(names, row, ids))
            self.likely += [
                Question(Evaluate(((name, tuple(names)),), limits), False),
                Question(Explain(name, row), False),
            ]

    def ask_some(self) -> None:
        asked, likely = self.questions(), [each for each in self.likely if self.now.policy.knows(each.ask)]
        chosen = self.rng.sample(likely, min(EACH * 2 // 3, len(likely)))
        chosen += self.rng.sample(asked, min(EACH - len(chosen), len(asked)))
        for question in chosen:
            before = microseconds()
            try:
                said = ask_adapter.ask(self.with_context(question), question.ask)
            except PastLimit:
                continue
            self.kept.append(KeptAnswer(self.now.number, question, said, before, microseconds()))

    def with_context(self, question: Question) -> Caller:
        return replace(self.caller, context=self.case.context if question.with_context else ())

    def __str__(self) -> str:
        told = [f"{state.number}: {state.story}" for state in self.states.values()]
        versions = {state.policy.number: state.policy.text for state in self.states.values()}
        return "\n".join([*(f"-- version {number}\n{text}" for number, text in versions.items()), *told])


def is_mentioned(row: Row) -> bool:
    return all(value != unmentioned(value.type) for value in row)


def exactly(fact: Fact) -> Fact:
    return fact


def json_of(fact: Fact) -> dict:
    predicate, row = fact
    return {"predicate": predicate, "args": [value and {"type": value.type, "id": value.id} for value in row]}


def wire_fact(fact: Fact) -> Any:
    from facts.wire import fact_from_json

    return fact_from_json(json_of(fact), "")


def told(parts: Batch) -> str:
    def shown(fact: Fact) -> str:
        return f"{fact[0]}({', '.join('_' if value is None else f'{value.type}:{value.id}' for value in fact[1])})"

    return "; ".join(f"{name} {', '.join(map(shown, facts))}" for name, facts in parts)


def sent(key: str, parts: Batch) -> int:
    return post(key, "/batch", [{name: list(map(json_of, facts))} for name, facts in parts])[1]


def post(key: str, path: str, body: object) -> tuple[Any, int]:
    """What is said, and the offset."""
    client, headers = APIClient(raise_request_exception=False), {"Authorization": f"Bearer {key}"}
    response = client.post(f"/api{path}", json.dumps(body), content_type="application/json", headers=headers)
    if path == "/policy" and response.status_code == 400:
        raise PolicyRefused(response.json()["message"])
    assert response.status_code in (200, 202), response.content
    return json.loads(response.content), int(response["OsoOffset"])


def changed(stored: Stored, parts: Batch) -> Stored:
    """What is stored after a batch."""
    found = dict(stored)
    for name, facts in parts:
        for each in facts:
            if name == "inserts":
                found.setdefault(each, None)
            else:
                found = {fact: end for fact, end in found.items() if not matches(each, fact)}
    return found


def matches(pattern: Fact, fact: Fact) -> bool:
    fits = [
        want is None or (want.type == value.type and want.id in (None, value.id))
        for want, value in zip(pattern[1], fact[1])
    ]
    return pattern[0] == fact[0] and len(pattern[1]) == len(fact[1]) and all(fits)


# ---- looking back --------------------------------------------------------------------------------------------------


@dataclass
class LookingBack:
    """What is said of a history when it is over, against what was said, and what is true of it."""

    history: History

    def __post_init__(self) -> None:
        found = Revision.objects.filter(environment_id=self.history.environment_id).order_by("number")
        self.revisions = {revision.number: revision for revision in found}
        self._known: dict[object, Truth] = {}

    def outcomes(self) -> Iterator[Outcome]:
        yield from self.counts()
        yield from self.facts()
        for kept in self.history.kept:
            yield from self.answers(kept)

    def counts(self) -> Iterator[Outcome]:
        states = self.history.states
        fault = "" if list(states) == list(self.revisions) else f"revisions {list(self.revisions)}, not {list(states)}"
        yield Outcome("revisions", fault)
        for number in states.keys() & self.revisions.keys():
            state, found = states[number], self.revisions[number]
            said = (found.kind, found.inserted, found.deleted, found.policy_version.number)
            wanted = (state.kind.value, state.inserted, state.deleted, state.policy.number)
            yield Outcome("counts", "" if said == wanted else f"revision {number} is {said}, not {wanted}")

    def facts(self) -> Iterator[Outcome]:
        for number, state in self.history.states.items():
            wanted = set(state.live(self.revisions[number].at))
            yield self._facts(f"as_of={number}", wanted)
            if state.stored:
                predicate, row = self.history.rng.choice(sorted(state.stored))
                place = self.history.rng.randrange(len(row)) if row else None
                query = {"predicate": predicate}
                if place is not None:
                    query |= {f"args.{place}.type": row[place].type, f"args.{place}.id": row[place].id}
                    wanted = {f for f in wanted if len(f[1]) > place and f[1][place] == row[place]}
                wanted = {fact for fact in wanted if fact[0] == predicate}
                yield self._facts(urlencode(query | {"as_of": number}), wanted)

    def _facts(self, query: str, wanted: set[Fact]) -> Outcome:
        headers = {"Authorization": f"Bearer {self.history.caller.key}"}
        response = ask_adapter.client.get(f"/api/facts?{query}", headers=headers)
        assert response.status_code == 200, response.content
        said = [(each["predicate"], tuple(Value(**arg) for arg in each["args"])) for each in response.json()]
        is_right = len(said) == len(wanted) and set(said) == wanted
        return Outcome("facts", "" if is_right else f"GET /facts?{query}: {sorted(said)}, not {sorted(wanted)}")

    # ---- answers -------------------------------------------------------------------------------------------------

    def answers(self, kept: KeptAnswer) -> Iterator[Outcome]:
        state, at = self.history.states[kept.number], self.revisions[kept.number].at
        numbered = self.asked(kept, state.policy, kept.number, at)
        same = state.is_steady(at, kept.answered_at) and is_same_second(state.policy, at, kept.answered_at)
        yield self.held(kept, state.policy, kept.number, at, numbered, kept.said if same else None)
        if (moment := self.time_of(kept, at)) is not None:
            timed = self.asked(kept, state.policy, text_of(moment), moment)
            same = state.is_steady(moment, kept.answered_at) and is_same_second(state.policy, moment, kept.answered_at)
            yield self.held(kept, state.policy, text_of(moment), moment, timed, kept.said if same else None)
        if self.history.rng.random() < 0.2:
            policy = self.history.rng.choice([state.policy for state in self.history.states.values()])
            if policy.knows(kept.question.ask):
                said = self.asked(kept, policy, kept.number, at, policy.number)
                yield self.held(kept, policy, kept.number, at, said, None)

    def time_of(self, kept: KeptAnswer, at: int) -> int | None:
        """When it was asked, if the revision was the last one by then."""
        after = self.revisions.get(kept.number + 1)
        moment = max(at, min(kept.asked_at, after.at - 1 if after else kept.asked_at))
        return None if after and after.at <= moment else moment

    def asked(self, kept: KeptAnswer, policy: Policy, as_of: int | str, at: int, version: int | None = None) -> Any:
        caller = replace(self.history.with_context(kept.question), as_of=as_of, policy_version=version)
        try:
            return ask_adapter.ask(caller, kept.question.ask)
        except PastLimit:
            return None

    def held(
        self, kept: KeptAnswer, policy: Policy, as_of: int | str, at: int, said: Any, then: Any
    ) -> Outcome:  # fmt: skip
        ask = kept.question.ask
        name = type(ask).__name__
        if said is None:
            return Outcome(f"{name} past a limit")
        state, latest = self.history.states[kept.number], self.history.now
        known = self.truth(state, policy, at, kept.question.with_context)
        meant, faults, is_some = meaning(ask, said, known.world), [], False
        if then is not None and meaning(ask, then, known.world) != meant:
            faults.append(f"it was {then}")
        if known.model:
            wanted = expected(ask, known.model, known.world)
            is_some = bool(wanted)
            faults += [] if meant == wanted or is_modest(said, wanted) else [f"the rules say {shown(wanted)}"]
            if isinstance(ask, Explain) and not faults and not isinstance(said, Refused):
                faults += faults_of(said, (ask.predicate, ask.row), known)
        elif then is None:
            return Outcome(f"{name} not known")
        fault = f"as of {as_of} by version {policy.number}, {kept.question}: {said}; {'; '.join(faults)}"
        moved = (policy, set(state.live(at))) != (latest.policy, set(latest.live(at)))
        return Outcome(name, fault if faults else "", moved, is_some)

    def truth(self, state: State, policy: Policy, at: int, with_context: bool) -> Truth:
        """By the oracle; without a model where that takes too long."""
        live = policy.useful(state.live(at))
        context = policy.useful(self.history.case.context) if with_context else []
        key = (policy.number, frozenset(live), with_context, at // 1_000_000 if policy.reads_the_clock else 0)
        if key not in self._known:
            mentioned = [value for question in self.every for value in values_in(question.ask)]
            facts = [*live, *(fact for fact in context if fact not in live)]
            world, model = World.of(policy.tree, facts, mentioned, at // 1_000_000), {}
            with suppress(TookTooLong), at_most(PATIENCE):
                model = model_of(policy.tree, facts, world) or {("", 0): set()}
            self._known[key] = Truth(world, model, frozenset(live), frozenset(context), policy.clauses)
        return self._known[key]

    @cached_property
    def every(self) -> set[Question]:
        return {kept.question for kept in self.history.kept}


def is_same_second(policy: Policy, start: int, stop: int) -> bool:
    return not policy.reads_the_clock or start // 1_000_000 == stop // 1_000_000


def is_modest(said: Any, wanted: Meaning) -> bool:
    """Refused by what one rule says, though it could be said."""
    refused = isinstance(said, Refused) and said.status == 400 and not isinstance(wanted, Refused)
    return refused and any(words in said.message for words in MODEST)


def shown(wanted: Meaning) -> str:
    return str(sorted(wanted)) if isinstance(wanted, frozenset) else "that it is refused"


# ---- both ----------------------------------------------------------------------------------------------------------


def outcomes(
    rng: Random, seed: int, new_key: Callable[[], str], features: Collection[str] = (), steps: int = 0
) -> tuple[History, list[Outcome]]:
    """Of one history. PolicyRefused where the service does not take a policy of it."""
    history = begun(rng, seed, new_key(), features)
    history.play(steps or rng.randint(*STEPS))
    return history, list(LookingBack(history).outcomes())


def begun(rng: Random, seed: int, key: str, features: Collection[str]) -> History:
    case = next(each for each in iter(lambda: some_case(seed, rng, features, False), None) if is_policy(each))
    less = list(itertools.islice((each for each in smaller(case) if each.policy != case.policy), 200))
    others = [each for each in rng.sample(less, min(8, len(less))) if each.policy.strip() and is_policy(each)][:3]
    other = random_case(rng, features)
    if is_policy(other):
        others.append(other)
    pool = list(dict.fromkeys([*case.facts, *case.context, *other.facts]))
    context = tuple(case.context)
    caller = Caller(key)
    environment_id = Environment.objects.get(api_keys__prefix=key.rpartition("_")[0]).pk
    return History(
        rng, replace(case, context=context), [each.policy for each in others], pool, caller, environment_id
    )  # fmt: skip
