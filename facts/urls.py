"""The endpoints about facts, by their path below /api."""

from facts import views

endpoints = {
    "batch": views.Batch(),
    "facts": views.FactsEndpoint(),
    "history": views.HistoryEndpoint(),
    "bulk": views.BulkChange(),
    "bulk_load": views.BulkLoad(),
    "bulk_delete": views.BulkDelete(),
    "clear_data": views.ClearData(),
    "stats": views.StatsEndpoint(),
    "changes": views.ChangesEndpoint(),
}
