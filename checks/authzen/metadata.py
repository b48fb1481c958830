"""Where the endpoints of AuthZEN are, for clients that look it up."""

from __future__ import annotations

from policy.endpoint import Endpoint, Request, Response
from policy.public_url import public_url_of


class Metadata(Endpoint):
    """Needs no key: it says nothing but addresses."""

    needs_key = False

    def get(self, request: Request) -> Response:
        base = public_url_of(request.headers)
        return Response(
            {
                "policy_decision_point": base,
                "access_evaluation_endpoint": f"{base}/access/v1/evaluation",
                "access_evaluations_endpoint": f"{base}/access/v1/evaluations",
                "search_subject_endpoint": f"{base}/access/v1/search/subject",
                "search_resource_endpoint": f"{base}/access/v1/search/resource",
                "search_action_endpoint": f"{base}/access/v1/search/action",
            },
            headers={"Cache-Control": "no-store"},  # the address is of this request
        )
