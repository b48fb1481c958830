from django.apps import AppConfig


class PolicyConfig(AppConfig):
    name = "policy"
    label = "authz_policy"
    verbose_name = "Policy"
    default_auto_field = "django.db.models.AutoField"  # as in its migrations, whatever a project sets
