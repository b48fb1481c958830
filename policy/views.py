"""The endpoints about policies."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from rest_framework import serializers

from policy import publishing
from policy.active import Scope, program_of_version
from policy.core.journal import By
from policy.endpoint import Doc, Endpoint, QueryParameter, Request, Response, caller, changed, nullable, ref, writing
from policy.errors import MalformedRequest, NotFound
from policy.models import PolicyVersion
from policy.publishing import MAX_NOTE, Published
from policy.rules.program import Program
from policy.values import MAX_VERSION, whole_number

UNCHANGED = 202
MAX_FILENAME = 1000  # characters
_NUMBER = {"type": "integer", "minimum": 0}

# ---- bodies --------------------------------------------------------------------------------------------------------


class TextField(serializers.Field):
    """A string. Unlike the framework's field, it does not convert numbers and other values to strings."""

    default_error_messages = {
        "type": "must be a string",
        "length": "must not be longer than {limit} characters",
        "unfit": "must not contain control characters",
    }

    def __init__(self, max_length: int | None = None, one_line: bool = False, **options: Any):
        super().__init__(**options)
        self.max_length = max_length
        self.one_line = one_line

    def to_internal_value(self, raw):
        if not isinstance(raw, str):
            self.fail("type")
        if self.max_length is not None and len(raw) > self.max_length:
            self.fail("length", limit=self.max_length)
        if self.one_line and not raw.isprintable():
            self.fail("unfit")
        return raw

    @property
    def schema(self) -> dict[str, Any]:
        length = {} if self.max_length is None else {"maxLength": self.max_length}
        text = {"type": "string"} | length | ({"pattern": "^[ -~]*$"} if self.one_line else {})
        return nullable(text) if self.allow_null else text


class PolicyBody(serializers.Serializer):
    """A text in Polar."""

    default_error_messages = {"invalid": "the request body must be an object"}

    src = TextField()
    filename = TextField(
        max_length=MAX_FILENAME,
        one_line=True,
        required=False,
        allow_null=True,
        default=None,
        help_text="A file name that precedes the problems in error messages: one line of printable characters.",
    )
    note = TextField(
        max_length=MAX_NOTE,
        one_line=True,
        required=False,
        allow_null=True,
        default=None,
        help_text="What changes and why: one line, stored with the policy version.",
    )


class PublishFlags(serializers.Serializer):
    force = serializers.BooleanField(default=False, help_text="Publish even if tests fail.")
    fail_fast = serializers.BooleanField(default=False, help_text="Stop at the first failed test.")
    show_suggestions = serializers.BooleanField(
        default=False, help_text="Include compiler warnings in the response message."
    )


# ---- endpoints -----------------------------------------------------------------------------------------------------


class PolicyEndpoint(Endpoint):
    scopes: ClassVar = {"GET": Scope.READ, "POST": Scope.POLICY}
    docs: ClassVar = {
        "GET": Doc(
            "Get the policy",
            ref("ActivePolicy"),
            "`policy` is null if no policy has been published.",
            parameters=(QueryParameter("id", "A policy version number (default: the active version).", _NUMBER),),
            statuses={400: "The version number is invalid.", 404: "The policy version does not exist."},
        ),
        "POST": Doc(
            "Publish a policy",
            ref("Message"),
            "Compiles the policy, runs its tests, and makes it the active version. If a test fails, the active "
            "policy is unchanged.",
            body=PolicyBody,
            parameters=PublishFlags,
            statuses={
                UNCHANGED: "The policy is already active, or waits for approval; nothing changed for callers.",
                400: "The policy does not compile, one of its tests fails, or the request is malformed.",
            },
            refused_body="PolicyRefused",
        ),
    }

    def get(self, request: Request) -> Response:
        version = _asked_version(request, "id")
        return Response({"policy": version and {"src": version.source, "filename": version.filename}})

    def post(self, request: Request) -> Response:
        who = caller(request)
        body = PolicyBody(data=request.data)
        body.is_valid(raise_exception=True)
        flags = PublishFlags(data={name: text for name, text in request.query_params.items() if text})
        flags.is_valid(raise_exception=True)
        suggesting = flags.validated_data.pop("show_suggestions")
        published = publishing.publish(
            who.environment_id,
            body.validated_data["src"],
            body.validated_data["filename"],
            within=lambda: writing(request),
            by=By(who.author, request.id),
            note=body.validated_data["note"] or "",
            **flags.validated_data,
        )
        response = changed(_message(published, suggesting), published.offset)
        response.status = UNCHANGED if published.is_unchanged or published.is_requested else 200
        return response

    def refusal(self, request: Request, status: int, body: dict[str, object]) -> dict[str, object]:
        return publishing_refusal(status, body) if request.method == "POST" else body


def publishing_refusal(status: int, body: dict[str, object]) -> dict[str, object]:
    """Add the `error_type` that clients expect in errors of publishing, except for 401, 403 and 429.

    An existing `error_type` is kept.
    """
    return body if status in (401, 403, 429) else {"error_type": "Generic", **body}


class PolicyMetadata(Endpoint):
    scopes: ClassVar = {"GET": Scope.READ}
    docs: ClassVar = {
        "GET": Doc(
            "Get the types, roles, permissions and relations",
            ref("Metadata"),
            parameters=(
                QueryParameter("version", "A policy version number (default: the active version).", _NUMBER),
                QueryParameter("id", "Same as `version`; the name that `GET /api/policy` uses.", _NUMBER),
            ),
            statuses={
                400: "A version number is invalid, or `version` and `id` differ.",
                404: "No policy has been published, or the version does not exist.",
            },
        )
    }

    def get(self, request: Request) -> Response:
        """Return a version's names. Clients pass the version as `version`, the published API document as `id`."""
        version = _asked_version(request, "version", "id")
        if version is None:
            raise NotFound("no policy has been published")
        return Response({"metadata": metadata_of(program_of_version(version.pk))})


def _asked_version(request: Request, *names: str) -> PolicyVersion | None:
    """Return the version whose number the query string gives under any of the names; by default, the active version."""
    who = caller(request)
    given = {name: _number(name, request.query_params[name]) for name in names if name in request.query_params}
    if not given:
        active = who.policy_version_id
        return None if active is None else PolicyVersion.objects.filter(pk=active).first()
    if len(set(given.values())) > 1:
        raise MalformedRequest(" and ".join(given), "must be the same number as the other parameter if both are given")
    return publishing.version_numbered(who.environment_id, next(iter(given.values())))


def _number(name: str, text: str) -> int:
    number = whole_number(text, MAX_VERSION)
    if number is None:
        raise MalformedRequest(name, "must be a policy version number")
    return number


def _message(published: Published, suggesting: bool) -> str:
    """Return the message of the response; with `show_suggestions`, including the compiler's warnings."""
    if not (suggesting and published.draft and published.draft.program.warnings):
        return published.message
    program = published.draft.program
    return "\n".join([published.message, *(warning.describe(program.source) for warning in program.warnings)])


# ---- names ---------------------------------------------------------------------------------------------------


def metadata_of(program: Program) -> dict[str, object]:
    """Return each block's roles, permissions and relations, sorted, with inherited ones; `global` is always present."""
    resources = {"global": _entry(program.global_roles, program.global_permissions, {})}
    for name, known in program.types.items():
        resources[name] = _entry(known.roles, known.permissions, known.relations)
    return {"resources": {name: resources[name] for name in sorted(resources)}}


def _entry(roles: Iterable[str], permissions: Iterable[str], relations: Mapping[str, str]) -> dict[str, object]:
    sorted_relations = {name: relations[name] for name in sorted(relations)}
    return {"roles": sorted(roles), "permissions": sorted(permissions), "relations": sorted_relations}
