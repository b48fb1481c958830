"""What all apps stand on. Nothing here knows what a policy, a fact or a question is."""
