"""The endpoints about policies."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from policy import publishing
from policy.active import program_of_version
from policy.endpoint import Doc, Endpoint, QueryParameter, Request, Response, caller, changed, ref, writing
from policy.errors import MalformedRequest, NotFound
from policy.ground.journal import By
from policy.models import PolicyVersion
from policy.publishing import Published
from policy.rules.program import Program
from policy.scopes import Scope
from policy.serializers import PolicyBody, PublishFlags

UNCHANGED = 202
_NUMBER = {"type": "integer", "minimum": 0}


class PolicyEndpoint(Endpoint):
    scopes: ClassVar = {"GET": Scope.READ, "POST": Scope.POLICY}
    docs: ClassVar = {
        "GET": Doc(
            "Read the policy",
            ref("ActivePolicy"),
            "null when there is none.",
            parameters=(QueryParameter("id", "The number of an earlier version.", _NUMBER),),
            statuses={400: "The number is not one.", 404: "There is no such version."},
        ),
        "POST": Doc(
            "Replace the policy",
            ref("Message"),
            "The text is compiled and the tests in it are run before it becomes active.",
            body=PolicyBody,
            parameters=PublishFlags,
            statuses={
                UNCHANGED: "It is the active policy already.",
                400: "The text is not a policy, a test in it fails, or the request is malformed.",
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
        response.status = UNCHANGED if published.is_unchanged else 200
        return response

    def refusal(self, request: Request, status: int, body: dict[str, object]) -> dict[str, object]:
        """Add the `error_type` that clients expect in errors of publishing, except for 401, 403 and 429.

        A body that has an `error_type` already keeps it.
        """
        is_at_the_door = status in (401, 403, 429)
        return {"error_type": "Generic", **body} if request.method == "POST" and not is_at_the_door else body


class PolicyMetadata(Endpoint):
    scopes: ClassVar = {"GET": Scope.READ}
    docs: ClassVar = {
        "GET": Doc(
            "List the types, roles, permissions and relations",
            ref("Metadata"),
            parameters=(
                QueryParameter("version", "The number of an earlier version.", _NUMBER),
                QueryParameter("id", "The same, by the name that it has for the policy.", _NUMBER),
            ),
            statuses={
                400: "A number is not one, or there are two that differ.",
                404: "There is no policy, or no such version.",
            },
        ),
    }

    def get(self, request: Request) -> Response:
        """Return a version's names. Clients name the version by `version`, the published API document by `id`."""
        version = _asked_version(request, "version", "id")
        if version is None:
            raise NotFound("no policy is loaded")
        return Response({"metadata": metadata_of(program_of_version(version.pk))})


def _asked_version(request: Request, *names: str) -> PolicyVersion | None:
    """Return the version whose number the query string gives under one of the names, else the active version."""
    who = caller(request)
    given = {name: _number(name, request.query_params[name]) for name in names if name in request.query_params}
    if not given:
        active = who.policy_version_id
        return None if active is None else PolicyVersion.objects.filter(pk=active).first()
    if len(set(given.values())) > 1:
        raise MalformedRequest(" and ".join(given), "must be the same number where both are given")
    return publishing.version_numbered(who.environment_id, next(iter(given.values())))


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise MalformedRequest(name, "must be the number of a policy version")
    return int(text)


def _message(published: Published, suggesting: bool) -> str:
    """Return the message of the response; with `show_suggestions`, with the compiler's warnings."""
    if not (suggesting and published.draft and published.draft.program.warnings):
        return published.message
    program = published.draft.program
    return "\n".join([published.message, *(warning.describe(program.source) for warning in program.warnings)])


# ---- names ---------------------------------------------------------------------------------------------------


def metadata_of(program: Program) -> dict[str, object]:
    """Return each block's roles, permissions and relations, sorted, with inherited ones; `global` is always there."""
    resources = {"global": _entry(program.global_roles, program.global_permissions, {})}
    for name, known in program.types.items():
        resources[name] = _entry(known.roles, known.permissions, known.relations)
    return {"resources": {name: resources[name] for name in sorted(resources)}}


def _entry(roles: Iterable[str], permissions: Iterable[str], relations: Mapping[str, str]) -> dict[str, object]:
    sorted_relations = {name: relations[name] for name in sorted(relations)}
    return {"roles": sorted(roles), "permissions": sorted(permissions), "relations": sorted_relations}
