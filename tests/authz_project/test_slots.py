"""Work for a bounded number of threads."""

import threading
import time

from authz_project.server.slots import Slots


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
