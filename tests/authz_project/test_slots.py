"""Work for a bounded number of threads."""

import threading
import time

from authz_project.server.slots import Slots
from policy.waiting import come_back, leave_place


def test_no_more_threads_work_than_there_are_slots():
    slots, lock, done, working, most = Slots(2), threading.Lock(), [], 0, 0

    def work(number: int) -> None:
        nonlocal working, most
        with lock:
            working += 1
            most = max(most, working)
        time.sleep(0.01)
        with lock:
            working -= 1
            done.append(number)

    threads = [threading.Thread(target=slots.do, args=(work, number)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert (most, sorted(done)) == (2, list(range(20)))


def test_work_that_fails_costs_no_slot(caplog):
    slots, done = Slots(1), []
    for _ in range(3):
        slots.do(lambda: 1 / 0)
    slots.do(done.append, "after")
    assert done == ["after"] and caplog.text.count("a request was not answered") == 3


def started(call, *arguments) -> threading.Thread:
    thread = threading.Thread(target=call, args=arguments)
    thread.start()
    return thread


def test_a_change_that_waits_for_another_leaves_its_slot_to_others():
    slots, first_is_done, questions = Slots(2, 4), threading.Event(), []
    waiting, most = threading.Barrier(4), []

    def follow() -> None:
        leave_place()
        waiting.wait(10)
        first_is_done.wait(10)
        come_back()
        most.append(slots_in_use(slots))

    first = started(slots.do_change, first_is_done.wait, 10)
    eventually(lambda: slots_in_use(slots) == 1)
    for _ in range(3):
        slots.do_change(follow)  # returns at once: somebody else does it
    waiting.wait(10)
    slots.do(questions.append, "asked")
    assert questions == ["asked"] and not most
    first_is_done.set()
    first.join(10)
    eventually(lambda: len(most) == 3 and slots_in_use(slots) == 0)
    assert max(most) <= 2


def test_what_waits_in_line_is_taken_up_by_whoever_is_aside():
    slots, go, done = Slots(1, 2), threading.Event(), []
    holder = started(slots.do_change, go.wait, 10)
    eventually(lambda: slots_in_use(slots) == 1)
    slots.do_change(done.append, "change")
    slots.do(done.append, "question")
    go.set()
    holder.join(10)
    eventually(lambda: sorted(done) == ["change", "question"] and slots_in_use(slots) == 0)


def test_a_change_that_fails_costs_no_slot(caplog):
    slots, go = Slots(1, 2), threading.Event()
    holder = started(slots.do_change, go.wait, 10)
    eventually(lambda: slots_in_use(slots) == 1)
    for _ in range(3):
        slots.do_change(lambda: 1 / 0)
    go.set()
    holder.join(10)
    eventually(lambda: caplog.text.count("a request was not answered") == 3 and slots_in_use(slots) == 0)


def test_the_slot_that_was_used_last_is_used_next():
    used = []

    class Slot:
        def __enter__(self):
            used.append(self)

        def __exit__(self, *error):
            pass

    slots = Slots(3, slot=Slot)
    for _ in range(5):
        slots.do(lambda: None)
    assert len(set(used)) == 1


def slots_in_use(slots: Slots) -> int:
    return slots.count - len(slots._free)


def eventually(holds) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)
