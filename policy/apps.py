import sys

from django.apps import AppConfig
from django.core import checks


class PolicyConfig(AppConfig):
    name = "policy"
    verbose_name = "Policy"

    def ready(self) -> None:
        checks.register(check_grammar, "policy")


def check_grammar(app_configs: object, **options: object) -> list[checks.Error]:
    """Report an error under `python -OO`, which strips docstrings: the grammar's productions are docstrings."""
    if sys.flags.optimize < 2:
        return []
    return [checks.Error("the grammar of policies is stripped", hint="run Python without -OO", id="policy.E001")]
