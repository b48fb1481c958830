"""Rows for tests, with everything that a test does not care about."""

import factory

from policy.models import Environment, PolicyVersion


class EnvironmentFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Environment

    slug = factory.Sequence(lambda n: f"environment{n}")
    name = factory.SelfAttribute("slug")


class PolicyVersionFactory(factory.django.DjangoModelFactory):
    """An active version of its environment's policy."""

    class Meta:
        model = PolicyVersion
        skip_postgeneration_save = True

    environment = factory.SubFactory(EnvironmentFactory)
    number = factory.LazyAttribute(lambda version: version.environment.policy_versions.count() + 1)
    source = ""
    digest = ""

    @factory.post_generation
    def is_active(version, create, extracted, **_):
        version.environment.policy_version = version
        version.environment.save(update_fields=["policy_version"])
