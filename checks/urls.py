"""URLs of the endpoints for checks, below /api."""

from checks import views

endpoints = {
    "authorize": views.Authorize(),
    "actions": views.Actions(),
    "list": views.List(),
    "authorize_resources": views.AuthorizeResources(),
    "authorize_each": views.AuthorizeEach(),
    "evaluate_query": views.Evaluate(),
    "query": views.QueryEndpoint(),
    "bulk_actions": views.BulkActions(),
    "explain": views.Explain(),
    "expect": views.Expect(),
}
