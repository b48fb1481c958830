"""The Python client as it is published today, and the first of its major version, in a world to ask about."""

from dataclasses import dataclass
from types import ModuleType

import pytest

from tests.clients.conftest import POLICY

FIRST, NEWEST = "2.0.0", "2.6.0"


@dataclass
class World:
    """A client, its module, and an environment of its own where ann and bob have roles."""

    module: ModuleType
    oso: object
    url: str
    key: str

    def __post_init__(self):
        self.ann, self.bob, self.cat = (self.value("User", name) for name in ("ann", "bob", "cat"))
        self.acme = self.value("Organization", "acme")
        self.anvil, self.hammer = self.value("Repository", "anvil"), self.value("Repository", "hammer")

    @property
    def refusal(self) -> type[Exception]:
        return getattr(self.module, "OsoException", Exception)

    def value(self, type_name: str, text: str):
        return self.module.Value(type_name, text)

    def of_type(self, type_name: str):
        return self.module.ValueOfType(type_name)

    def var(self, type_name: str):
        return self.module.typed_var(type_name)

    def stored(self, *pattern) -> list[tuple]:
        """What of the pattern is stored, as plain text."""
        return [(name, *(value.id for value in args)) for name, *args in self.oso.get(pattern)]

    def another(self, **options):
        return self.module.Oso(url=self.url, api_key=self.key, **options)


@pytest.fixture(params=[FIRST, NEWEST])
def world(request, service, oso_cloud) -> World:
    client, module = service.fresh_client(), oso_cloud(request.param)
    world = World(module, module.Oso(url=client.origin, api_key=client.key), client.origin, client.key)
    world.oso.policy(POLICY)
    with world.oso.batch() as batch:
        batch.insert(("has_role", world.ann, "owner", world.acme))
        batch.insert(("has_role", world.bob, "writer", world.hammer))
        batch.insert(("has_relation", world.anvil, "organization", world.acme))
        batch.insert(("has_relation", world.hammer, "organization", world.acme))
    return world
