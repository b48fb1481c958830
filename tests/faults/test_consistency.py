"""What servers answer while they fail is consistent; and the checker that says so finds histories that are not."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from tests.faults import consistency, history_checker, moving
from tests.faults.history_checker import Operation, problems

ANSWERS = 20  # at least, after the last fault


def change(revision: int, at: float, **changes) -> Operation:
    named = {name.replace("_", "/"): value for name, value in changes.items()}
    return Operation(at, at + 0.5, revision, named)


def answer(revision: int, at: float, is_granted: bool, key: str = "k", **more) -> Operation:
    return Operation(at, at + 0.5, revision, answers={key: is_granted}, **more)


def lost(at: float, **changes) -> Operation:
    return replace(change(0, at, **changes), completed=None)


POLICY, GRANT, TAKE = change(1, 1, mode="reader"), change(2, 2, reader_k=True), change(3, 5, reader_k=False)
OTHER_POLICY = change(4, 7, mode="editor")
RIGHT = [POLICY, answer(1, 1.8, False), GRANT, answer(2, 3, True), TAKE, answer(3, 6, False), OTHER_POLICY]


@pytest.mark.parametrize(
    "more",
    [
        [],
        [answer(2, 5.1, True)],  # while the change is on its way
        [answer(2, 6, True, staleness=5.0, at_least=2)],  # of a replica
        [lost(3, reader_k=False), answer(4, 8, False)],
        [lost(7.6, reader_k=True, mode="reader"), answer(4, 8, False), answer(5, 8.1, True)],
        [lost(7.6, mode="reader", reader_k=True), answer(5, 8, True), change(6, 9, mode="reader"), answer(6, 10, True)],
    ],
)  # fmt: skip
def test_what_may_happen_is_consistent(more):
    assert problems([*RIGHT, *more]) == []


WRONG = {
    "a change that is lost": ([answer(4, 8, False), change(5, 9, mode="reader", reader_k=True), answer(5, 10, False)],
        "no state of revision 5"),
    "a change that is lost later": ([change(5, 9, editor_k=True), answer(5, 10, True), answer(6, 11, False)],
        "no state of revision 6"),
    "a stale answer": ([answer(2, 6, True)], "a stale answer: revision 3 was acknowledged"),
    "an answer older than the position": ([answer(2, 6, True, staleness=9.0, at_least=3)], "older than revision 3"),
    "a phantom": ([answer(2, 3, True, key="never")], "no state of revision 2"),
    "a grant before it was sent": ([answer(2, 1, True)], "a change that was sent later"),
    "the policy of one revision and the facts of another": ([answer(4, 8, True)], "no state of revision 4"),
    "policies in another order": ([change(6, 8, mode="reader"), change(5, 9, mode="editor")],
        "revision 6 was acknowledged before this change was sent"),
    "one revision for two changes": ([change(4, 7.1, reader_j=True)], "was given to two changes"),
    "half of a change": (
        [change(5, 9, editor_k=True, editor_j=True), answer(5, 10, True), answer(5, 10, False, key="j")],
        "no state of revision 5 gives this answer about j"),
    "an unacknowledged change that comes and goes": (
        [lost(7.6, editor_k=True), answer(5, 8, True), answer(6, 9, False)], "no state of revision 6"),
    "an unacknowledged change where no revision is left": ([lost(7.6, editor_k=True), answer(4, 8, True)],
        "no state of revision 4"),
    "an unacknowledged change before it was sent": (
        [lost(12, editor_k=True), answer(5, 11, True), answer(6, 13, True)], "no state of revision 5"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name):
    more, said = WRONG[name]
    (found,) = problems([*RIGHT, *more])
    assert said in found


def test_each_wrong_answer_in_a_long_history_is_found():
    """Turned round one by one, whatever else is there."""
    history = [change(1, 0, mode="reader")]
    for number in range(2, 40):
        history.append(change(number, number, **{f"reader_k{number % 5}": number % 3 > 0}))
        history.append(answer(number, number + 0.6, number % 3 > 0, key=f"k{number % 5}"))
    history.append(lost(60, reader_k0=True))
    assert problems(history) == []
    for place, each in enumerate(history):
        if each.answers:
            ((key, is_granted),) = each.answers.items()
            assert (
                len(problems([*history[:place], replace(each, answers={key: not is_granted}), *history[place + 1 :]]))
                == 1
            )


def test_a_file_is_checked_without_the_service(tmp_path):
    path = tmp_path / "history.jsonl"
    command = [sys.executable, "-c", "import runpy, sys; sys.argv[0] = 'x'\n"
        f"runpy.run_path({history_checker.__file__!r}, run_name='__main__')", path]  # fmt: skip
    for more, status in (([], 0), (WRONG["a phantom"][0], 1)):
        history_checker.write(path, [*RIGHT, *more])
        found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert found.returncode == status, found.stderr
        assert found.stdout.endswith(f"{len(RIGHT) + len(more)} operations, {status} problems\n")


@pytest.mark.long
def test_servers_that_are_killed_and_paused_answer_consistently():
    """For a moment; `python -m tests.faults.consistency` does it for long, and loses the primary as well."""
    with consistency.place(standbys=1) as where:
        faults = [consistency.pause_replication, consistency.kill_a_server]
        found = consistency.recorded(where, faults, seed=1, calm=0.8, answers=ANSWERS)
    assert (found.problems, found.refused) == ([], [])
    assert sum(bool(each.answers) for each in found.history) > ANSWERS


@pytest.mark.long
def test_an_environment_that_moves_is_answered_consistently():
    """For a moment; `python -m tests.faults.moving` does it for long, and on two servers."""
    with moving.place() as where:
        faults = [moving.move, moving.move_and_kill, moving.move]
        found = consistency.recorded(where, faults, seed=1, calm=0.5, answers=ANSWERS)
    assert (found.problems, found.refused, where.failed) == ([], [], [])
    assert sum(bool(each.answers) for each in found.history) > ANSWERS
