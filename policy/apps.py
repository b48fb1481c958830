from django.apps import AppConfig


class PolicyConfig(AppConfig):
    name = "policy"
    label = "authz_policy"
    verbose_name = "Policy"
