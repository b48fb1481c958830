from django.apps import AppConfig
from django.core import checks


class PolicyConfig(AppConfig):
    name = "policy"
    verbose_name = "Policy"

    def ready(self) -> None:
        checks.register(check_grammar, "policy")


def check_grammar(app_configs: object, **options: object) -> list[checks.Error]:
    """Productions are docstrings, which `python -OO` strips: no policy could be read."""
    from policy.language import grammar_is_intact  # here, since most commands have no use for the language

    if grammar_is_intact():
        return []
    return [checks.Error("the grammar of policies is stripped", hint="run Python without -OO", id="policy.E001")]
