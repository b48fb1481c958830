"""Modules that take long are run by one process each, and quick ones come last, where others may take them."""

import pytest
from xdist.scheduler.worksteal import WorkStealingScheduling

from tests.shares import dealt, sizes

LONG = {"a": 5, "b": 1, "c": 3, "d": 2}  # modules, and how many tests they have
QUICK = {"e": 20, "f": 4, "g": 1}


def written(modules: dict[str, int]) -> list[str]:
    return [f"{name}{number}" for name, count in modules.items() for number in range(count)]


def ordered(modules: dict[str, int], many: int, long: str = "abcd") -> list[str]:
    """Where one test of each of those modules is a long one."""
    return dealt(written(modules), lambda test: test[0], lambda test: test[0] in long and test.endswith("0"), many)


@pytest.mark.parametrize("many", [1, 2, 3, 4])
def test_each_process_begins_with_whole_modules(many):
    tests = iter(ordered(QUICK | LONG, many))
    for place, size in enumerate(sizes(36, many)):
        part = [next(tests) for _ in range(size)]
        expected = written({name: LONG[name] for name in list(LONG)[place::many]})
        assert part[: len(expected)] == expected
        assert {test[0] for test in part[len(expected) :]} <= set(QUICK)


@pytest.mark.parametrize("many", [1, 2, 3, 8])
@pytest.mark.parametrize("modules", [LONG, QUICK, LONG | QUICK, {"a": 30, "e": 2}, {}], ids=str)
def test_none_is_left_out(modules, many):
    assert sorted(ordered(modules, many)) == sorted(written(modules))


def test_tests_are_cut_as_xdist_does(monkeypatch, pytestconfig):
    sent: list[int] = []
    monkeypatch.setattr(WorkStealingScheduling, "_send_tests", lambda self, node, number: cut(self, sent, number))
    found = WorkStealingScheduling.__new__(WorkStealingScheduling)
    found.pending, found.steal_requested_from_node = list(range(36)), "nobody"
    found.node2pending = {Node(): [] for _ in range(5)}
    found.check_schedule()
    assert sent == list(sizes(36, 5))


class Node:
    shutting_down = False


def cut(scheduling: WorkStealingScheduling, sent: list[int], number: int) -> None:
    sent.append(number)
    del scheduling.pending[:number]
