"""Operations that store, delete and read facts."""

from authz_project.openapi.operation import Example, Group, Operation, Parameter
from facts.history_query import LARGEST, USUAL
from facts.serializers import CHANGES
from policy import json_schema
from policy.json_schema import Schema, many, ref
from policy.scopes import Scope

ANN = {"type": "User", "id": "ann"}
ACME = {"type": "Organization", "id": "acme"}
ANVIL = {"type": "Repository", "id": "anvil"}


def role(user: str, name: str, organization: str = "acme") -> dict:
    args = [("User", user), ("String", name), ("Organization", organization)]
    return {"predicate": "has_role", "args": [{"type": type_name, "id": text} for type_name, text in args]}


def belongs(repository: str, organization: str = "acme") -> dict:
    args = [("Repository", repository), ("String", "organization"), ("Organization", organization)]
    return {"predicate": "has_relation", "args": [{"type": type_name, "id": text} for type_name, text in args]}


BEN_FOR_NOW = role("ben", "owner") | {"expires_at": "2099-01-01T00:00:00Z"}
_PATTERN = (
    Parameter("predicate", "Of the facts to list."),
    *(
        Parameter(f"args.{place}.{part}", f"The {part} of argument {place}.")
        for place in range(5)
        for part in ("type", "id")
    ),
)
_SIZE: Schema = {"type": "integer", "minimum": 1, "maximum": LARGEST, "default": USUAL}

GROUP = Group(
    "Facts",
    "Who is what to whom. The active policy must have a use for a fact that is stored.",
    (
        Operation(
            "POST",
            "/api/batch",
            "Insert and delete facts",
            ref("Message"),
            Example(
                {"message": "the batch is applied"},
                [
                    {"deletes": [{"predicate": "has_role", "args": [ANN, None, {"type": "Organization", "id": None}]}]},
                    {"inserts": [role("ann", "member"), BEN_FOR_NOW, belongs("anvil"), belongs("hammer")]},
                ],
            ),
            description="In order, all or none. To insert what is there, or to delete what is not, is no mistake. A "
            "fact that is inserted may say when it ends (`expires_at`): from then on it counts no more. Inserted again "
            "with another end, or with none, it has that one.",
            body=CHANGES.schema,
            is_change=True,
            scope=Scope.FACTS,
        ),
        Operation(
            "GET",
            "/api/facts",
            "List stored facts",
            many(ref("StoredFact")),
            Example(
                [BEN_FOR_NOW], query={"predicate": "has_role", "args.0.type": "User", "args.0.id": "ben"}
            ),
            description="What a policy derives is not among them, nor what has ended. Without parameters: all. "
            "Arguments are counted from 0 to 4, and those that are not named may be anything.",
            parameters=(
                *_PATTERN,
                Parameter("as_of", "A revision's number, or a time in RFC 3339: the facts that held then."),
            ),
            is_dated=True,
            statuses={400: "A parameter is malformed."},
        ),
        Operation(
            "GET",
            "/api/history",
            "Who inserted and deleted facts, and when",
            ref("History"),
            Example(
                {
                    "results": [
                        {
                            "revision": 2,
                            "at": "2026-11-03T14:02:11.123456Z",
                            "author": 'key 3 "billing"',
                            "kind": "facts",
                            "inserted": [role("ann", "member")],
                            "deleted": [],
                            "policy_version": 1,
                        }
                    ],
                    "next_page_token": None,
                    "horizon": 0,
                },
                query={"predicate": "has_role", "args.0.type": "User", "args.0.id": "ann", "page_size": "100"},
            ),
            description="The revisions that changed the facts that GET /api/facts lists with these parameters, or "
            "would have listed. A page is of so many facts: a revision that changed more goes on with the next page.",
            parameters=(
                *_PATTERN,
                Parameter("as_of", "A revision's number, or a time in RFC 3339: what had happened by then."),
                Parameter("page_size", f"Facts on a page: 1 to {LARGEST}; {USUAL} if it is left out.", _SIZE),
                Parameter("page_token", "The `next_page_token` of the page before, with the same other parameters."),
            ),
            statuses={400: "A parameter is malformed."},
        ),
        Operation(
            "GET",
            "/api/changes",
            "Follow what changes",
            ref("Changes"),
            Example(
                {
                    "changes": [
                        {
                            "revision": 2,
                            "at": "2026-11-03T14:02:11.123456Z",
                            "author": 'key 1 "billing"',
                            "kind": "facts",
                            "inserted": [role("ann", "member"), BEN_FOR_NOW],
                            "deleted": [],
                            "policy_version": None,
                        }
                    ],
                    "next": 2,
                    "more": False,
                },
                query={"after": "1", "predicate": "has_role"},
            ),
            description="In order and without gaps: each committed change once, and whole. Go on with `after` as "
            "`next` was. `after=0` begins with all facts as of the oldest revision that is kept.",
            parameters=(
                Parameter("after", "A revision's number, or what `next` was; 0 if not said."),
                Parameter("limit", "Facts of an answer: 1 to 10,000, and 1,000 if not said.", {"type": "integer"}),
                Parameter("wait", "Seconds to wait for a change where there is none yet: 0 to 60.", {"type": "number"}),
                Parameter("predicate", "Only facts of it; may be given several times.", many(json_schema.text())),
            ),
            statuses={
                400: "A parameter is malformed, or there is no such revision yet.",
                410: "What follows this revision is not kept any more; it is from `horizon` on.",
            },
            refused_bodies={410: "BeforeHorizon"},
        ),
    ),
)
