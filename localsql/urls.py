"""The endpoints below /api, by path."""

from localsql import views

endpoints = {
    "authorize_query": views.Authorize(),
    "list_query": views.List(),
    "actions_query": views.Actions(),
    "evaluate_query_local": views.Evaluate(),
}
