"""A disk without room: questions are answered, changes are refused whole, and it passes once there is room."""

from __future__ import annotations

import json
import os
import resource
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.authz_project.test_backup import manage
from tests.faults.disks import fill, make_room, small_disk
from tests.faults.limits import lowered, workers_of
from tests.faults.load import How, Load, statuses
from tests.faults.worlds import USERS, Changes, Questions, fact, port_of, world
from tests.service import Service

pytestmark = pytest.mark.long

MEGABYTES = 24
WITHIN = 60  # seconds
TOLD = (
    "disk is full",
    "disk reports I/O errors",
)  # where nothing can be mounted, files have a limit, which is an error


@contextmanager
def no_room(folder: Path, service: Service, is_disk: bool) -> Iterator[None]:
    """On the disk; or, where there is none of our own, for the server: no file of its may grow."""
    with ExitStack() as stack:
        if is_disk:
            fill(folder)
            stack.callback(make_room, folder)
        else:
            for each in workers_of(service):
                stack.enter_context(lowered(each, resource.RLIMIT_FSIZE, 1))
        yield


def test_under_load_nothing_is_half_there(tmp_path, monkeypatch):
    """Changes that were acknowledged are stored, and no others but those that had no answer."""
    with ExitStack() as stack:
        place = stack.enter_context(world("sqlite"))
        place.folder = tmp_path / "disk"
        is_disk = stack.enter_context(small_disk(place.folder, MEGABYTES))
        monkeypatch.setenv("SECRET_KEY", place.variables["SECRET_KEY"])  # or commands look for one in a file
        place.url = f"sqlite:///{place.folder / 'facts.sqlite3'}"
        log = place.folder / "decisions.jsonl"
        service = place.started("--workers", "2", DECISION_LOG=str(log))
        client = place.filled(service)
        changes, questions = Changes(place.key), Questions(place.key)
        how = How(connections=4, rate=200, keeps_bodies=True)
        loads = [Load([port_of(service)], each, how) for each in (changes, questions)]
        threads = [threading.Thread(target=load.run) for load in loads]
        for each in threads:
            each.start()
        time.sleep(1)
        with no_room(place.folder, service, is_disk):
            time.sleep(2)
            big = [fact("change", ("Number", f"big{number}" + "x" * 400)) for number in range(20_000)]
            for body in (fact("change", ("Number", "alone" + "x" * 500)), None):
                answer = client.post("/batch", [{"inserts": [body] if body else big}])
                assert answer.status_code in (200, 503), answer.text
            assert answer.status_code == 503 and answer.headers["Retry-After"], answer.text
            assert any(told in answer.json()["message"] for told in TOLD), answer.text
            time.sleep(1)
            refused = Counter(each.status for each in loads[0].told[-5:])
            backup = manage(place.folder, place.url, "backup", "copy.sqlite3", code=1) if is_disk else ""
            assert ("nothing was written" in backup) == is_disk
            assert not (place.folder / "copy.sqlite3").exists() and not list(place.folder.glob(".copy*"))
        before = len(loads[0].told)
        wait_for(lambda: 200 in {each.status for each in loads[0].told[before:]})
        for load, thread in zip(loads, threads):
            load.is_over = True
            thread.join()
        assert set(statuses(loads[0].told)) <= {200, 503} and refused[503], statuses(loads[0].told)
        assert set(statuses(loads[1].told)) == {200}, "questions are answered all the while"
        assert all(questions.is_right(each.number, each.body) for each in loads[1].told)
        stored = changes.made(client)
        acknowledged = {each.number for each in loads[0].told if each.status == 200}
        assert stored == acknowledged
        assert not [each for each in client.get("/facts", params={"predicate": "change"}).json() if "big" in str(each)]
        assert len(client.get("/facts", params={"predicate": "has_role"}).json()) == USERS
        assert "ok     facts of `default`" in manage(place.folder, place.url, "verify")
        check_lines(log)
        assert service.stop() == 0
        assert "Traceback" not in service.log.read_text()


def check_lines(log: Path) -> None:
    """Each line of the decision log is one, however much is left out."""
    lines = log.read_bytes().splitlines()
    assert len(lines) > 100
    for line in lines:
        assert json.loads(line)["answer"]


def test_an_earlier_copy_survives_one_that_has_no_room(tmp_path):
    with world("sqlite") as place, small_disk(tmp_path / "disk", MEGABYTES) as is_disk:
        if not is_disk:
            assert os.getuid() != 0 or not os.environ.get("CI"), "root may mount in CI"
            pytest.skip("this user may mount nothing: a failure in the middle is in the tests of backups")
        service = place.started("--workers", "1")
        place.filled(service)
        service.stop()
        copy = tmp_path / "disk" / "copy.sqlite3"
        manage(tmp_path, place.url, "backup", str(copy))
        before = copy.read_bytes()
        fill(copy.parent, but=100_000)
        assert "nothing was written" in manage(tmp_path, place.url, "backup", "--overwrite", str(copy), code=1)
        assert copy.read_bytes() == before
        assert not list(copy.parent.glob(".*")), "nothing is left of what was begun"
        manage(tmp_path, place.url, "verify", str(copy))


def wait_for(holds) -> None:
    until = time.monotonic() + WITHIN
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)
