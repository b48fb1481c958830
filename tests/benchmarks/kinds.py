"""Kinds of questions as requests, each with the truth, which the statement by hand says; and that statement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import orjson

from tests.benchmarks import handwritten_sets as sets
from tests.benchmarks.clients import Request, request
from tests.benchmarks.database import Database, Given, Rows
from tests.benchmarks.generate import BOSS, Size, entity
from tests.benchmarks.handwritten import QUESTIONS, Handwritten
from tests.benchmarks.served import Served

SAMPLES = 200
FEW = 20  # samples of what takes long
CONTEXT_FACTS = 100
AMONG = 1000  # resources in one question
PAGE = 10_000


@dataclass(frozen=True)
class Kind:
    """`bare` runs the statement by hand, and for lists writes its rows as JSON, for one of the samples."""

    name: str
    path: str
    requests: list[Request]
    bare: list[Callable[[], object]]
    answers: str  # what they are like


@dataclass
class Making:
    """What kinds are made from."""

    served: Served
    rng: Random

    @property
    def database(self) -> Database:
        return self.served.database

    @property
    def size(self) -> Size:
        return self.served.size

    def kind(self, name: str, path: str, samples: list[tuple[dict, Given]], rows: Rows, answer, write=None) -> Kind:
        """`answer(rows)` is the truth as JSON; `write` is what else by hand has to do with rows."""
        requests, bare, told = [], [], []
        for body, given in samples:
            truth = answer(rows(given))
            told.append(truth)
            requests.append(request(self.served.key, path, body, lambda said, truth=truth: truth_in(said) == truth))
            bare.append(lambda given=given: write(rows(given)) if write else rows(given))
        return Kind(name, path, requests, bare, described(told))


def truth_in(said: object) -> object:
    """What must be true of an answer: not how a list goes on."""
    if isinstance(said, dict):
        return said.get("allowed", said.get("results"))
    return said


def described(told: list) -> str:
    if isinstance(told[0], bool):
        return f"{sum(told)} of {len(told)} yes"
    return f"{sum(map(len, told)) / len(told):,.0f} of each"


def kinds(served: Served, only: str = "") -> list[Kind]:
    making = Making(served, Random(7))
    makers: list[tuple[str, Callable[[str], Kind]]] = []
    for brings_facts in (False, True):
        for question in QUESTIONS:
            name = question.name + (", context" if brings_facts else "")
            make = listing if question.is_list else authorize
            makers.append((name, lambda name, q=question, m=make, brings=brings_facts: m(making, name, q, brings)))
    makers += [(name, lambda name, make=make: make(making, name)) for name, make in OTHERS]
    return [make(name) for name, make in makers if only in name]


# ---- authorize and list --------------------------------------------------------------------------------------


def authorize(making: Making, name: str, question: Handwritten, brings_facts: bool) -> Kind:
    samples = []
    for actor, resource in [*stored_pairs(making, question, SAMPLES // 2), *any_pairs(making, question, SAMPLES // 2)]:
        given = {"actor": actor, "action": question.action, "resource": resource}
        body = asked(actor, question.action) | {"resource_type": question.resource_type, "resource_id": resource}
        samples.append(with_context(making, question, body, given, brings_facts))
    making.rng.shuffle(samples)
    rows = statement(making, question, brings_facts)
    return making.kind(name, "/authorize", samples, rows, lambda found: bool(found[0][0]))


def listing(making: Making, name: str, question: Handwritten, brings_facts: bool) -> Kind:
    samples = []
    actors = list(question.actors) * FEW or [actor for actor, _ in stored_pairs(making, question, SAMPLES)]
    for actor in actors:
        given = {"actor": actor, "action": question.action}
        body = asked(actor, question.action) | {"resource_type": question.resource_type, "page_size": PAGE}
        samples.append(with_context(making, question, body, given, brings_facts))
    rows = statement(making, question, brings_facts)
    return making.kind(name, "/list", samples, rows, lambda found: first(found)[:PAGE], as_json)


def first(found: list[tuple]) -> list:
    return [row[0] for row in found]


def as_json(found: list[tuple]) -> bytes:
    return orjson.dumps({"results": first(found)})


def asked(actor: str, action: str) -> dict:
    return {"actor_type": "User", "actor_id": actor, "action": action}


def statement(making: Making, question: Handwritten, brings_facts: bool) -> Rows:
    text = question.text(making.database.vendor, brings_facts)
    return making.database.prepared(text, brought=making.database.number(question.brought))


def with_context(making: Making, question: Handwritten, body: dict, given: Given, brings_facts: bool):
    if not brings_facts:
        return body, given
    kind = question.brought.rpartition("_")[2]
    number = making.database.number(question.brought)
    rows = list(context(making, kind, given["actor"]))
    facts = [{"predicate": "has_role", "args": [of("User", a0), of("String", a1), of(kind, a2)]} for a0, a1, a2 in rows]
    brought = orjson.dumps([[number, *row, "", ""] for row in rows]).decode()
    return body | {"context_facts": facts}, given | {"facts": brought}


def context(making: Making, kind: str, actor: str):
    """Roles of the actor, and of 99 others."""
    rng, size = making.rng, making.size
    roles = ("viewer", "editor", "auditor") if kind == "Folder" else ("reader", "writer", "admin")
    things = {"Project": size.projects, "Repo": size.repos, "Folder": size.folders}[kind]
    for each in [actor, *(entity("User", rng.randrange(size.users)).id for _ in range(CONTEXT_FACTS - 1))]:
        yield each, rng.choice(roles), entity(kind, rng.randrange(things)).id


def of(type_name: str, text: str) -> dict:
    return {"type": type_name, "id": text}


# ---- whom and what to ask about ------------------------------------------------------------------------------


def stored_pairs(making: Making, question: Handwritten, count: int) -> list[tuple[str, str]]:
    return stored(making, f"has_role_User_{question.resource_type}", count)


def stored(making: Making, key: str, count: int) -> list[tuple[str, str]]:
    """Those of stored facts; neighbours in the key would share pages, so every so manieth of many."""
    rows = making.database.prepared(f"SELECT a0, a2 FROM authz_fact WHERE sig = {{{key}}} LIMIT {50 * count}")({})
    spread = rows[:: max(1, len(rows) // count)][:count]
    return [tuple(row) for row in spread]


def any_pairs(making: Making, question: Handwritten, count: int) -> list[tuple[str, str]]:
    """Anybody and anything; where there is something to see, now and then the boss, who sees it by the longest way."""
    size, rng, kind = making.size, making.rng, question.resource_type
    things = {"Project": size.projects, "Repo": size.repos, "Doc": size.docs}[kind]
    pairs = [(entity("User", rng.randrange(size.users)), entity(kind, rng.randrange(things))) for _ in range(count)]
    if kind != "Project":
        pairs[::3] = [(entity("User", BOSS), entity(kind, rng.randrange(size.listed))) for _ in pairs[::3]]
    return [(actor.id, resource.id) for actor, resource in pairs]


# ---- the other kinds -----------------------------------------------------------------------------------------


def issues(making: Making, name: str) -> Kind:
    pairs = [(creator, issue) for issue, creator in stored(making, "has_relation_Issue_User", SAMPLES // 2)]
    users = [entity("User", making.rng.randrange(making.size.users)).id for _ in pairs]
    pairs += [(user, issue) for user, (_, issue) in zip(users, pairs)]
    samples = [
        (asked(actor, "close") | {"resource_type": "Issue", "resource_id": issue}, {"actor": actor, "resource": issue})
        for actor, issue in pairs
    ]
    return making.kind(
        name, "/authorize", samples, making.database.prepared(sets.CLOSES), lambda found: bool(found[0][0])
    )


def actions(kind: str, text: str) -> Callable[[Making, str], Kind]:
    """Of the samples that authorize has."""

    def make(making: Making, name: str) -> Kind:
        question = next(each for each in QUESTIONS if each.resource_type == kind and not each.is_list)
        half = SAMPLES // 2
        pairs = [*stored_pairs(making, question, half), *any_pairs(making, question, half)]
        making.rng.shuffle(pairs)
        samples = [
            (
                {"actor_type": "User", "actor_id": actor, "resource_type": kind, "resource_id": resource},
                {"actor": actor, "resource": resource},
            )
            for actor, resource in pairs
        ]
        return making.kind(name, "/actions", samples, making.database.prepared(text), first)

    return make


def among(kind: str, text: Callable[[str], str]) -> Callable[[Making, str], Kind]:
    """Thousands of resources, half of them in what the boss sees."""

    def make(making: Making, name: str) -> Kind:
        samples = []
        for turn in range(FEW):
            actor, ids = some_of(making, kind, AMONG, turn)
            body = asked(actor, "read") | {"resources": [of(kind, each) for each in ids]}
            samples.append((body, {"actor": actor, "action": "read", "ids": orjson.dumps(ids).decode()}))
        rows = making.database.prepared(text(making.database.vendor))
        # By hand they come in any order; the service answers in the order of the question.
        truth = Ordered(samples)
        return making.kind(name, "/authorize_resources", samples, rows, truth.of(kind), as_json)

    return make


def some_of(making: Making, kind: str, count: int, turn: int) -> tuple[str, list[str]]:
    """The boss or anybody, and so many resources, half of them of those that the boss sees."""
    size = making.size
    things = {"Repo": size.repos, "Doc": size.docs}[kind]
    numbers = making.rng.sample(range(things), min(count, size.listed))
    numbers[::2] = making.rng.sample(range(size.listed), len(numbers[::2]))
    actor = BOSS if turn % 2 else entity("User", making.rng.randrange(size.users)).id
    return actor, [entity(kind, number).id for number in numbers]


def checks_of_one(count: int) -> Callable[[Making, str], Kind]:
    """So many checks of one user in a request."""

    def make(making: Making, name: str) -> Kind:
        samples, asked_for = [], []
        for turn in range(FEW):
            actor, ids = some_of(making, "Repo", count, turn)
            who = {"type": "User", "id": actor}
            checks = [{"actor": who, "action": "read", "resource": {"type": "Repo", "id": each}} for each in ids]
            samples.append(({"checks": checks}, {"actor": actor, "action": "read", "ids": orjson.dumps(ids).decode()}))
            asked_for.append(ids)
        rows = making.database.prepared(sets.repositories_among(making.database.vendor))
        turns = iter(asked_for)

        def answer(found: list[tuple]) -> list[bool]:
            allowed = set(first(found))
            return [each in allowed for each in next(turns)]

        return making.kind(name, "/authorize_each", samples, rows, answer)

    return make


@dataclass
class Ordered:
    """Puts what is found in the order in which it was asked for; asked once for each sample, in turn."""

    samples: list[tuple[dict, Given]]
    turn: int = 0

    def of(self, kind: str) -> Callable[[list[tuple]], list[dict]]:
        def answer(found: list[tuple]) -> list[dict]:
            body, _ = self.samples[self.turn]
            self.turn += 1
            allowed = set(first(found))
            return [each for each in body["resources"] if each["id"] in allowed]

        return answer


def who_closes(making: Making, name: str) -> Kind:
    samples = []
    for issue, _ in stored(making, "has_relation_Issue_Repo", SAMPLES):
        constraints = {
            "user": {"type": "User", "ids": None},
            "action": {"type": "String", "ids": ["close"]},
            "issue": {"type": "Issue", "ids": [issue]},
        }
        body = {"predicate": ["allow", ["user", "action", "issue"]], "calls": [], "constraints": constraints}
        samples.append((body, {"resource": issue}))
    rows = making.database.prepared(f"SELECT * FROM ({sets.CLOSERS}) x ORDER BY 1")
    turn = iter([given["resource"] for _, given in samples])

    def answer(found: list[tuple]) -> list[dict]:
        issue = next(turn)
        return [{"user": user, "action": "close", "issue": issue} for user in first(found)]

    return making.kind(name, "/evaluate_query", samples, rows, answer)


def in_organisation(making: Making, name: str) -> Kind:
    """A query of two calls, for people who have something to do with it."""
    samples, turns = [], []
    organisations = dict(stored(making, "has_relation_Repo_Org", 50 * SAMPLES))
    for user, repo in stored(making, "has_role_User_Repo", SAMPLES):
        org = organisations.get(repo, entity("Org", 1).id)
        constraints = {
            "user": {"type": "User", "ids": [user]},
            "action": {"type": "String", "ids": ["write"]},
            "repo": {"type": "Repo", "ids": None},
            "relation": {"type": "String", "ids": ["organization"]},
            "org": {"type": "Org", "ids": [org]},
        }
        calls = [["has_relation", ["repo", "relation", "org"]]]
        body = {"predicate": ["allow", ["user", "action", "repo"]], "calls": calls, "constraints": constraints}
        samples.append((body, {"actor": user, "org": org}))
        turns.append({"user": user, "action": "write", "relation": "organization", "org": org})
    turn = iter(turns)

    def answer(found: list[tuple]) -> list[dict]:
        rest = next(turn)
        return [rest | {"repo": repo} for repo in first(found)]

    return making.kind(name, "/evaluate_query", samples, making.database.prepared(sets.IN_ORGANISATION), answer)


OTHERS = (
    ("issue", issues),
    ("actions on a repository", actions("Repo", sets.on_a_repository())),
    ("actions on a document", actions("Doc", sets.on_a_document())),
    ("1,000 repositories given", among("Repo", sets.repositories_among)),
    ("1,000 documents given", among("Doc", sets.documents_among)),
    ("50 checks of one user", checks_of_one(50)),
    ("1,000 checks of one user", checks_of_one(1000)),
    ("query: who may close", who_closes),
    ("query: where in an organisation", in_organisation),
)
