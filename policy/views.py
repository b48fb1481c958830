"""The policy's part of the interface."""

from rest_framework.request import Request
from rest_framework.response import Response

from policy import publishing
from policy.active import program_of_version
from policy.endpoint import Endpoint, caller, changed, writing
from policy.errors import MalformedRequest, NotFound
from policy.metadata import metadata_of
from policy.models import PolicyVersion
from policy.publishing import Published
from policy.serializers import PolicyBody, PublishFlags

UNCHANGED = 202


class Policy(Endpoint):
    def get(self, request: Request) -> Response:
        version = _asked_version(request)
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
            **flags.validated_data,
        )
        response = changed(_message(published, suggesting), published.offset)
        response.status_code = UNCHANGED if published.is_unchanged else 200
        return response

    def handle_exception(self, error: Exception) -> Response:
        """A policy that is not accepted says why in one of three shapes; this gives the rest of the errors theirs."""
        response = super().handle_exception(error)
        if self.request.method == "POST" and response.status_code != 401:
            response.data = {"error_type": "Generic", **response.data}
        return response


class PolicyMetadata(Endpoint):
    def get(self, request: Request) -> Response:
        program = program_of_version(caller(request).policy_version_id)
        if program is None:
            raise NotFound("no policy is loaded")
        return Response({"metadata": metadata_of(program)})


def _asked_version(request: Request) -> PolicyVersion | None:
    """The version with the number in `?id=`, else the active one."""
    who = caller(request)
    asked = request.query_params.get("id")
    if asked is None:
        return PolicyVersion.objects.filter(pk=who.policy_version_id).first()
    if not (asked.isascii() and asked.isdecimal() and len(asked) < 10):
        raise MalformedRequest("id", "must be the number of a policy version")
    return publishing.version_numbered(who.environment_id, int(asked))


def _message(published: Published, suggesting: bool) -> str:
    """With `show_suggestions`, what the compiler wonders about too."""
    if not (suggesting and published.draft and published.draft.program.warnings):
        return published.message
    program = published.draft.program
    return "\n".join([published.message, *(warning.describe(program.source) for warning in program.warnings)])
