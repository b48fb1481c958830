"""Paths below /api."""

from django.urls import path

from checks import views

urlpatterns = [
    path("authorize", views.Authorize.as_view()),
    path("actions", views.Actions.as_view()),
    path("list", views.List.as_view()),
    path("authorize_resources", views.AuthorizeResources.as_view()),
    path("evaluate_query", views.Evaluate.as_view()),
    path("query", views.Facts.as_view()),
    path("bulk_actions", views.BulkActions.as_view()),
    path("explain", views.Explain.as_view()),
    path("expect", views.Expect.as_view()),
]
