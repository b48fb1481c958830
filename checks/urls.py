"""URLs of the endpoints for checks, below /api."""

from checks import views
from checks.decisions.log import EVENTS
from policy.endpoint import Endpoint

KINDS_OF_EVENTS = ("tool_call_request", "tool_call_response", "tool_call_error", "message_from_user", "message_to_user")

endpoints: dict[str, Endpoint] = {
    "authorize": views.Authorize(),
    "actions": views.Actions(),
    "list": views.List(),
    "authorize_resources": views.AuthorizeResources(),
    "authorize_each": views.AuthorizeEach(),
    "evaluate_query": views.Evaluate(),
    "query": views.QueryEndpoint(),
    "bulk_actions": views.BulkActions(),
    "explain": views.Explain(),
    "review_access": views.ReviewAccess(),
    "preview_policy": views.PreviewPolicy(),
    "expect": views.Expect(),
    **{EVENTS + kind: views.RecordEvent() for kind in KINDS_OF_EVENTS},
}
