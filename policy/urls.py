"""The endpoints about policies, by their path below /api."""

from policy import views

endpoints = {"policy": views.PolicyEndpoint(), "policy_metadata": views.PolicyMetadata()}
