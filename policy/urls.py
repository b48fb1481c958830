"""The policy's endpoints, by their path below /api."""

from policy import views

endpoints = {
    "policy": views.PolicyEndpoint(),
    "policy_metadata": views.PolicyMetadata(),
}
