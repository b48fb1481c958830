"""The changes that `python -m tests.code_mutants` makes can be made, and their tests are there."""

import ast

from tests.code_mutants import AREAS, PICKED, is_there, mutants, paths
from tests.service import ROOT


def test_each_change_is_one_of_the_source_as_it_is():
    found = mutants(1)
    assert {each.path for each in found} == AREAS.keys()
    for mutant in found:
        source = (ROOT / mutant.path).read_bytes()
        assert mutant.applied(source) != source
        if mutant.kind == "picked":
            ast.parse(mutant.applied(source))
    assert [each for each in PICKED if not is_there(*each)] == []


def test_the_tests_of_each_area_are_there():
    missing = [path for _, tests in AREAS.values() for path in paths(tests) if not (ROOT / path).exists()]
    assert missing == []
