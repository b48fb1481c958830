"""The endpoints below /api, by path."""

from localsql import views

endpoints = {
    "authorize_query": views.LocalAuthorize(),
    "list_query": views.LocalList(),
    "actions_query": views.LocalActions(),
    "evaluate_query_local": views.LocalEvaluate(),
}
