"""Types of answers and facts, generated from the OpenAPI document by `python -m tests.client_types`."""

# ruff: noqa: E501, RUF036  generated
# fmt: off

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class AccessReviewJson(TypedDict):
    results: list[AccessReviewResultJson]
    not_answered: list[str]
    next_page_token: str | None


class AccessReviewResultJson(TypedDict):
    state: Literal['has', 'gained', 'lost', 'kept']
    actor: ValueJson
    action: str
    resource: ValueJson


class ActionsJson(TypedDict):
    results: list[str]


class ActivePolicyJson(TypedDict):
    policy: ActivePolicyPolicyJson | None


class ActivePolicyPolicyJson(TypedDict):
    src: str
    filename: str | None


class ArgumentJson(TypedDict):
    type: str
    id: NotRequired[str | None]


class ChangeJson(TypedDict):
    revision: int
    at: str
    author: str
    kind: str
    inserted: list[ChangeInsertedJson]
    deleted: list[StoredFactJson]
    policy_version: int | None
    part: NotRequired[int]
    parts: NotRequired[int]


class ChangeInsertedJson(TypedDict):
    predicate: str
    args: list[ValueJson]
    expires_at: NotRequired[str]


class ChangeMadeJson(TypedDict):
    message: str
    warnings: NotRequired[list[str]]


class ChangesJson(TypedDict):
    changes: list[ChangeJson]
    next: int | str
    more: bool


class DecisionJson(TypedDict):
    allowed: bool


class DecisionsJson(TypedDict):
    results: list[bool]


class EvaluatedJson(TypedDict):
    decision: bool
    context: NotRequired[dict[str, Any]]


class EvaluatedManyJson(TypedDict):
    evaluations: list[EvaluatedJson]


class ExplainedCheckJson(TypedDict):
    policy_version: int | None
    goal: str
    allowed: bool
    proof: ReasonJson | None
    obstacles: list[ReasonJson]
    note: str
    unused_context_facts: NotRequired[list[str]]
    complete: NotRequired[Literal[False]]
    message: NotRequired[str]
    would_allow: NotRequired[ExplainedCheckWouldAllowJson]


class ExplainedCheckWouldAllowJson(TypedDict):
    changes: list[ExplainedCheckWouldAllowChangeJson]
    notes: list[str]


class ExplainedCheckWouldAllowChangeJson(TypedDict):
    insert: list[FactJson]
    delete: list[FactJson]


class FactJson(TypedDict):
    predicate: str
    args: list[ValueJson]


class FactPatternJson(TypedDict):
    predicate: str
    args: list[None | ArgumentJson]


class HistoryJson(TypedDict):
    results: list[HistoryResultJson]
    next_page_token: str | None
    horizon: int


class HistoryResultJson(TypedDict):
    revision: int
    at: str
    author: str
    kind: str
    inserted: list[ChangeInsertedJson]
    deleted: list[ChangeInsertedJson]
    policy_version: int | None


class ListingJson(TypedDict):
    results: list[str]
    next_page_token: NotRequired[str | None]


class MessageJson(TypedDict):
    message: str


class MetadataJson(TypedDict):
    metadata: MetadataMetadataJson


class MetadataMetadataJson(TypedDict):
    resources: dict[str, ResourceMetadataJson]


class NewFactJson(TypedDict):
    predicate: str
    args: list[ValueJson]
    expires_at: NotRequired[str | None]


class PolicyPreviewJson(TypedDict):
    decisions: str
    differ: int
    differences: list[PolicyPreviewDifferenceJson]
    tests: str
    failed_tests: list[str]
    unused_facts: list[str]


class PolicyPreviewDifferenceJson(TypedDict):
    check: str
    allowed: bool


class ReasonJson(TypedDict):
    kind: Literal['rule', 'part', 'fact', 'comparison', 'absence', 'again', 'unexplained', 'obstacle', 'missing', 'false', 'present']
    text: str
    fact: NotRequired[ReasonFactJson]
    source: NotRequired[Literal['stored', 'context', 'policy']]
    rule: NotRequired[ReasonRuleJson]
    bindings: NotRequired[dict[str, ReasonFactArgJson]]
    met: NotRequired[list[str]]
    note: NotRequired[str]
    since: NotRequired[ReasonSinceJson]
    until: NotRequired[ReasonSinceJson]
    expires_at: NotRequired[str]
    because: NotRequired[list[ReasonJson]]


class ReasonFactJson(TypedDict):
    predicate: str
    args: list[ReasonFactArgJson]


class ReasonFactArgJson(TypedDict):
    type: str
    id: str | None


class ReasonRuleJson(TypedDict):
    text: str
    line: int | None


class ReasonSinceJson(TypedDict):
    revision: int | None
    at: str | None
    author: str | None
    kind: str | None
    before: NotRequired[int]


class ResourceMetadataJson(TypedDict):
    roles: list[str]
    permissions: list[str]
    relations: dict[str, str]


class SolutionsJson(TypedDict):
    results: list[dict[str, str | None]]


class StoredFactJson(TypedDict):
    predicate: str
    args: list[ValueJson]
    expires_at: NotRequired[str]


class ValueJson(TypedDict):
    type: str
    id: str
