"""Paths below /api."""

from django.urls import path

from facts import views

urlpatterns = [
    path("batch", views.Batch.as_view()),
    path("facts", views.Facts.as_view()),
    path("bulk", views.BulkChange.as_view()),
    path("bulk_load", views.BulkLoad.as_view()),
    path("bulk_delete", views.BulkDelete.as_view()),
    path("clear_data", views.ClearData.as_view()),
    path("stats", views.Stats.as_view()),
]
