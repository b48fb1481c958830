"""What revisions cost those who write: batches, deletes and loads, of this checkout and of another one in turns.

    git worktree add --detach ../before COMMIT
    python -m tests.benchmarks.writes_of_time ../before [--databases sqlite,postgres] [--turns 15] [--load 50000]

Each side is a process with a database of its own, which stores and deletes as the endpoints and the command do. Prints
seconds of a processor, of the process and of its PostgreSQL backend, and by how many times as many facts a second are
written here as there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent.parent.parent
BATCH = 1_000
BEFORE = 50_000  # facts
MARKS = {"insert": 0.85, "delete": 0.6, "load": 0.85}


def main() -> int:
    from tests import standalone

    options = parsed()
    standalone.set_up()
    return max([measured(kind, options) for kind in options.databases.split(",")])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="the checkout to compare this one with")
    parser.add_argument("--databases", default="sqlite,postgres")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--load", type=int, default=50_000, help="facts of each load")
    return parser.parse_args()


def measured(kind: str, options: argparse.Namespace) -> int:
    from tests.properties.run_long import database

    found: dict[str, list[list[float]]] = {}
    with ExitStack() as stack:
        roots = (options.other.resolve(), HERE)
        sides = [stack.enter_context(worker(root, stack.enter_context(database(kind)))) for root in roots]
        for turn in range(options.turns):
            for act, size in (("insert", BATCH), ("delete", BATCH), ("load", options.load)):
                if act == "load" and turn % 3:
                    continue
                seconds = [told(side, f"{act} {turn} {size}") for side in sides[:: 1 if turn % 2 else -1]]
                found.setdefault(act, []).append(seconds[:: 1 if turn % 2 else -1])
    missed = 0
    for act, times in found.items():
        other, mine = (median(each) for each in zip(*times))
        ratio = median(other / mine for other, mine in times)  # of one turn, in which the machine is the same for both
        missed |= ratio < MARKS[act]
        print(f"{kind:<10}{act:<8}{other * 1e3:>10.1f} ms{mine * 1e3:>10.1f} ms{ratio:>8.2f}  >= {MARKS[act]}")
    return missed


@contextmanager
def worker(root: Path, url: str) -> Iterator[subprocess.Popen]:
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", url]
    variables = os.environ | {"PYTHONPATH": str(root)}
    with subprocess.Popen(
        command, cwd=root, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:  # fmt: skip
        told(process, f"load -1 {BEFORE}")
        yield process
        process.stdin.close()


def told(process: subprocess.Popen, order: str) -> float:
    process.stdin.write(f"{order}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


# ---- one side ------------------------------------------------------------------------------------------------------


def work(url: str) -> None:
    """Do what each line says, and answer with the seconds of a processor."""
    sys.path[0] = os.environ["PYTHONPATH"]
    from tests import standalone

    standalone.set_up(url)
    from django.core.management import call_command

    from facts import loading, store
    from facts.serializers import changes_from_json
    from policy.models import default_environment

    assert Path(loading.__file__).is_relative_to(os.environ["PYTHONPATH"])
    call_command("migrate", verbosity=0)
    environment, used = default_environment().pk, clock()
    for order in sys.stdin:
        act, turn, size = order.split()
        made = facts_of(int(turn), int(size))
        started = used()
        if act == "load":
            loading.load(environment, enumerate(made))
        else:
            store.apply(environment, changes_from_json([{f"{act}s": made}], ""))
        print(used() - started, flush=True)


def facts_of(turn: int, count: int) -> list[dict]:
    """Roles of users on repositories, in no order; those of a batch are others than those of a load."""
    args = [
        (f"user-{number % 10_007}", ("reader", "writer")[number % 2], f"repo{turn}-{number:08x}-{count}")
        for number in (each * 2654435761 % 2**32 for each in range(count))
    ]
    kinds = ("User", "String", "Repo")
    return [
        {"predicate": "has_role", "args": [{"type": kind, "id": text} for kind, text in zip(kinds, row)]}
        for row in args
    ]  # fmt: skip


def clock():
    """Of this process, and of its backend."""
    import psutil
    from django.db import connection

    if connection.vendor == "sqlite":
        return time.process_time
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        backend = psutil.Process(cursor.fetchone()[0])

    def used() -> float:
        # The kernel counts a backend's time by the nanosecond there.
        return time.process_time() + int(Path(f"/proc/{backend.pid}/schedstat").read_text().split()[0]) / 1e9

    return used


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        work(sys.argv[2])
    else:
        sys.exit(main())
