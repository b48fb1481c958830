"""Random models, carried over, answer as a plain reading of them does."""

import pytest

from authz_project.importers.convert import carried
from authz_project.importers.ir import Imported, ImportReport, Thing, Who
from authz_project.importers.layout import without_circles
from tests.conftest import DATABASES
from tests.importers.asking import Carriage
from tests.importers.plain import World
from tests.importers.random_models import IDS, NAMES, THINGS, case_of
from tests.sampling import in_turns

ASKED = [Who("user", "1"), Who("user", "2"), Who("robot", "1"), Who("group", "1", "owner")]


def compare(seed: int) -> None:
    case = case_of(seed)
    context = tuple(case.context.items())
    carriage = Carriage(carried(Imported(case.model, tuple(case.tuples)), ImportReport(), usersets=True))
    world = World(without_circles(case.model, ImportReport()), case.tuples, case.context)
    for who in ASKED:
        for relation in NAMES:
            for type_name in THINGS:
                expected = {f"{type_name}:{each}" for each in IDS if world.holds(who, relation, Thing(type_name, each))}
                assert (
                    carriage.objects(who, relation, type_name, (), context) & {f"{type_name}:{each}" for each in IDS}
                    == expected
                ), (seed, who, relation, type_name)
    for relation in NAMES:
        thing, who = Thing("document", "1"), Who("user", "1")
        held = world.holds(who, relation, thing)
        assert carriage.check(who, relation, thing, (), context) == held, (seed, relation)


@pytest.mark.parametrize("seed", in_turns(range(8)))
def test_random_models_answer_as_they_say(db, seed):
    compare(seed)


@pytest.mark.long
def test_many_random_models_answer_as_they_say(db):
    """Half of them on each database: it is about what is carried over, more than about where it is asked."""
    for seed in range(100, 130)[DATABASES.index(db) :: 2]:
        compare(seed)
