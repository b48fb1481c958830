"""Types of answers and facts, generated from the OpenAPI document by `python -m tests.client_types`."""

# ruff: noqa: E501, RUF036, UP013  generated; classes of these names would be those of the service

from typing import Any, Literal, NotRequired, TypedDict

AccessReview = TypedDict(
    "AccessReview",
    {
        "results": "list[AccessReviewResult]",
        "not_answered": list[str],
        "next_page_token": "str | None",
    },
)

AccessReviewResult = TypedDict(
    "AccessReviewResult",
    {
        "state": "Literal['has', 'gained', 'lost', 'kept']",
        "actor": "Value",
        "action": str,
        "resource": "Value",
    },
)

Actions = TypedDict(
    "Actions",
    {
        "results": list[str],
    },
)

ActivePolicy = TypedDict(
    "ActivePolicy",
    {
        "policy": "ActivePolicyPolicy | None",
    },
)

ActivePolicyPolicy = TypedDict(
    "ActivePolicyPolicy",
    {
        "src": str,
        "filename": "str | None",
    },
)

Argument = TypedDict(
    "Argument",
    {
        "type": str,
        "id": NotRequired["str | None"],
    },
)

Change = TypedDict(
    "Change",
    {
        "revision": int,
        "at": str,
        "author": str,
        "kind": str,
        "inserted": "list[ChangeInserted]",
        "deleted": "list[StoredFact]",
        "policy_version": "int | None",
        "part": NotRequired[int],
        "parts": NotRequired[int],
    },
)

ChangeInserted = TypedDict(
    "ChangeInserted",
    {
        "predicate": str,
        "args": "list[Value]",
        "expires_at": NotRequired[str],
    },
)

ChangeMade = TypedDict(
    "ChangeMade",
    {
        "message": str,
        "warnings": NotRequired[list[str]],
    },
)

Changes = TypedDict(
    "Changes",
    {
        "changes": "list[Change]",
        "next": "int | str",
        "more": bool,
    },
)

Decision = TypedDict(
    "Decision",
    {
        "allowed": bool,
    },
)

Decisions = TypedDict(
    "Decisions",
    {
        "results": list[bool],
    },
)

Evaluated = TypedDict(
    "Evaluated",
    {
        "decision": bool,
        "context": NotRequired["dict[str, Any]"],
    },
)

EvaluatedMany = TypedDict(
    "EvaluatedMany",
    {
        "evaluations": "list[Evaluated]",
    },
)

ExplainedCheck = TypedDict(
    "ExplainedCheck",
    {
        "policy_version": "int | None",
        "goal": str,
        "allowed": bool,
        "proof": "Reason | None",
        "obstacles": "list[Reason]",
        "note": str,
        "unused_context_facts": NotRequired[list[str]],
        "complete": NotRequired["Literal[False]"],
        "message": NotRequired[str],
        "would_allow": NotRequired["ExplainedCheckWouldAllow"],
    },
)

ExplainedCheckWouldAllow = TypedDict(
    "ExplainedCheckWouldAllow",
    {
        "changes": "list[ExplainedCheckWouldAllowChange]",
        "notes": list[str],
    },
)

ExplainedCheckWouldAllowChange = TypedDict(
    "ExplainedCheckWouldAllowChange",
    {
        "insert": "list[Fact]",
        "delete": "list[Fact]",
    },
)

Fact = TypedDict(
    "Fact",
    {
        "predicate": str,
        "args": "list[Value]",
    },
)

FactPattern = TypedDict(
    "FactPattern",
    {
        "predicate": str,
        "args": "list[None | Argument]",
    },
)

History = TypedDict(
    "History",
    {
        "results": "list[HistoryResult]",
        "next_page_token": "str | None",
        "horizon": int,
    },
)

HistoryResult = TypedDict(
    "HistoryResult",
    {
        "revision": int,
        "at": str,
        "author": str,
        "kind": str,
        "inserted": "list[ChangeInserted]",
        "deleted": "list[ChangeInserted]",
        "policy_version": "int | None",
    },
)

Listing = TypedDict(
    "Listing",
    {
        "results": list[str],
        "next_page_token": NotRequired["str | None"],
    },
)

Message = TypedDict(
    "Message",
    {
        "message": str,
    },
)

Metadata = TypedDict(
    "Metadata",
    {
        "metadata": "MetadataMetadata",
    },
)

MetadataMetadata = TypedDict(
    "MetadataMetadata",
    {
        "resources": "dict[str, ResourceMetadata]",
    },
)

NewFact = TypedDict(
    "NewFact",
    {
        "predicate": str,
        "args": "list[Value]",
        "expires_at": NotRequired["str | None"],
    },
)

PolicyPreview = TypedDict(
    "PolicyPreview",
    {
        "decisions": str,
        "differ": int,
        "differences": "list[PolicyPreviewDifference]",
        "tests": str,
        "failed_tests": list[str],
        "unused_facts": list[str],
    },
)

PolicyPreviewDifference = TypedDict(
    "PolicyPreviewDifference",
    {
        "check": str,
        "allowed": bool,
    },
)

Reason = TypedDict(
    "Reason",
    {
        "kind": "Literal['rule', 'part', 'fact', 'comparison', 'absence', 'again', 'unexplained', 'obstacle', 'missing', 'false', 'present']",
        "text": str,
        "fact": NotRequired["ReasonFact"],
        "source": NotRequired["Literal['stored', 'context', 'policy']"],
        "rule": NotRequired["ReasonRule"],
        "bindings": NotRequired["dict[str, ReasonFactArg]"],
        "met": NotRequired[list[str]],
        "note": NotRequired[str],
        "since": NotRequired["ReasonSince"],
        "until": NotRequired["ReasonSince"],
        "expires_at": NotRequired[str],
        "because": NotRequired["list[Reason]"],
    },
)

ReasonFact = TypedDict(
    "ReasonFact",
    {
        "predicate": str,
        "args": "list[ReasonFactArg]",
    },
)

ReasonFactArg = TypedDict(
    "ReasonFactArg",
    {
        "type": str,
        "id": "str | None",
    },
)

ReasonRule = TypedDict(
    "ReasonRule",
    {
        "text": str,
        "line": "int | None",
    },
)

ReasonSince = TypedDict(
    "ReasonSince",
    {
        "revision": "int | None",
        "at": "str | None",
        "author": "str | None",
        "kind": "str | None",
        "before": NotRequired[int],
    },
)

ResourceMetadata = TypedDict(
    "ResourceMetadata",
    {
        "roles": list[str],
        "permissions": list[str],
        "relations": "dict[str, str]",
    },
)

Solutions = TypedDict(
    "Solutions",
    {
        "results": "list[dict[str, str | None]]",
    },
)

StoredFact = TypedDict(
    "StoredFact",
    {
        "predicate": str,
        "args": "list[Value]",
        "expires_at": NotRequired[str],
    },
)

Value = TypedDict(
    "Value",
    {
        "type": str,
        "id": str,
    },
)
