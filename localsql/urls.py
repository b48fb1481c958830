"""Paths below /api."""

from django.urls import path

from localsql import views

urlpatterns = [
    path("authorize_query", views.Authorize.as_view()),
    path("list_query", views.List.as_view()),
    path("actions_query", views.Actions.as_view()),
    path("evaluate_query_local", views.Evaluate.as_view()),
]
