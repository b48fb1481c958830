"""Operations that store, delete and read facts."""

from authz_project.openapi.operation import Example, Group, Operation, Parameter
from facts.serializers import CHANGES
from policy.json_schema import many, ref

ANN = {"type": "User", "id": "ann"}
ACME = {"type": "Organization", "id": "acme"}
ANVIL = {"type": "Repository", "id": "anvil"}


def role(user: str, name: str, organization: str = "acme") -> dict:
    args = [("User", user), ("String", name), ("Organization", organization)]
    return {"predicate": "has_role", "args": [{"type": type_name, "id": text} for type_name, text in args]}


def belongs(repository: str, organization: str = "acme") -> dict:
    args = [("Repository", repository), ("String", "organization"), ("Organization", organization)]
    return {"predicate": "has_relation", "args": [{"type": type_name, "id": text} for type_name, text in args]}


ANN_FOR_NOW = role("ann", "member") | {"expires_at": "2099-01-01T00:00:00Z"}

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
                    {"inserts": [ANN_FOR_NOW, role("ben", "owner"), belongs("anvil"), belongs("hammer")]},
                ],
            ),
            description="In order, all or none. To insert what is there, or to delete what is not, is no mistake. A "
            "fact that is inserted may say when it ends (`expires_at`): from then on it counts no more. Inserted again "
            "with another end, or with none, it has that one.",
            body=CHANGES.schema,
            is_change=True,
        ),
        Operation(
            "GET",
            "/api/facts",
            "List stored facts",
            many(ref("StoredFact")),
            Example(
                [ANN_FOR_NOW], query={"predicate": "has_role", "args.0.type": "User", "args.0.id": "ann"}
            ),
            description="What a policy derives is not among them, nor what has ended. Without parameters: all. "
            "Arguments are counted from 0 to 4, and those that are not named may be anything.",
            parameters=(
                Parameter("predicate", "Of the facts to list."),
                Parameter("as_of", "A revision's number, or a time in RFC 3339: the facts that held then."),
                *(
                    Parameter(f"args.{place}.{part}", f"The {part} of argument {place}.")
                    for place in range(5)
                    for part in ("type", "id")
                ),
            ),
            statuses={400: "A parameter is malformed."},
        ),
    ),
)
