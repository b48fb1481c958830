"""What stands below /api, by path."""

from policy import views

endpoints = {
    "policy": views.Policy(),
    "policy_metadata": views.PolicyMetadata(),
}
