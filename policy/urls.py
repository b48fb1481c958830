"""Paths below /api."""

from django.urls import path

from policy import views

urlpatterns = [
    path("policy", views.Policy.as_view()),
    path("policy_metadata", views.PolicyMetadata.as_view()),
]
