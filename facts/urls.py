"""What stands below /api, by path."""

from facts import views

endpoints = {
    "batch": views.Batch(),
    "facts": views.Facts(),
    "history": views.History(),
    "bulk": views.BulkChange(),
    "bulk_load": views.BulkLoad(),
    "bulk_delete": views.BulkDelete(),
    "clear_data": views.ClearData(),
    "stats": views.Stats(),
    "changes": views.Changes(),
}
