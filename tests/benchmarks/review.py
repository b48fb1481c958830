"""How long a review of access takes over many facts, and how much memory.

    python -m tests.benchmarks.review --facts 1000000 --changes 1000 --database sqlite [--all]

Changes are of three sorts: roles on repositories, members of organisations, and both at once. `--all` also lists all
that everybody had, and compares across a change of the policy, which asks about everything.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import psutil

from tests.benchmarks.clients import Clients, request
from tests.benchmarks.generate import POLICY, Size
from tests.benchmarks.moments import role, told, upload
from tests.benchmarks.served import VARIABLES, Served, served
from tests.service import ROOT


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--facts", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--all", action="store_true", dest="everything")
    asked = parser.parse_args()
    with served(asked.database, Size(asked.facts)) as server:
        stored = server.database.prepared("SELECT count(*) FROM authz_fact")({})[0][0]
        print(f"{stored:,} facts on {asked.database}", flush=True)
        revisions = list(changed(server, asked.changes))
        for (name, first), (_, last) in pairwise(revisions):
            reviewed(server, name, "--from", str(first), "--to", str(last))
        if asked.everything:
            reviewed(server, "another policy", "--from", str(revisions[-1][1]))
            reviewed(server, "who had what", "--at", str(revisions[0][1]))
    return 0


def changed(server: Served, changes: int) -> Iterator[tuple[str, int]]:
    """What changes next, each with the revision before it."""
    random = Random(1)
    repos = [role(f"guest-{each}", "reader", "Repo", f"repo-{random.randrange(1000)}") for each in range(changes)]
    orgs = [role(f"visitor-{each}", "member", "Org", f"org-{random.randrange(20)}") for each in range(changes)]
    sorts = {"roles on repositories": [{"inserts": repos}], "members": [{"inserts": orgs}]}
    sorts["both, deleted"] = [{"deletes": repos + orgs}]
    clients = Clients(server.port, 1)
    for name, batch in sorts.items():
        yield name, offset(server)
        clients.ask([request(server.key, "/batch", batch, told)], 0)
    yield "", offset(server)
    upload(clients, server.key, POLICY.replace('"read" if is_public(resource);', '"write" if is_public(resource);'))
    clients.close()


def offset(server: Served) -> int:
    return server.database.prepared('SELECT "offset" FROM authz_environment')({})[0][0]


def reviewed(server: Served, name: str, *options: str) -> None:
    command = [sys.executable, ROOT / "manage.py", "review_access", "--format", "csv", *options]
    variables = os.environ | VARIABLES | {"DATABASE_URL": server.url, "PYTHONPATH": str(ROOT)}
    started = time.perf_counter()
    with (Path(server.folder) / "errors").open("w+") as errors:
        running = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=errors, text=True)
        process, lines, peak, last = psutil.Process(running.pid), 0, 0, deque(maxlen=1)
        for lines, line in enumerate(running.stdout or (), 1):
            last.append(line)
            if lines % 100 == 1:
                peak = max(peak, process.memory_info().rss)
        code = running.wait()
        errors.seek(0)
        said = errors.read().splitlines()[-1:]
    seconds = time.perf_counter() - started
    took = f"{lines - 1:,} lines in {seconds:,.1f} s, {peak / 1e6:,.0f} MB"
    print(f"{name} ({' '.join(options)}): {took}, code {code}; {said}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
