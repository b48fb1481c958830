"""How long simple questions wait while the same worker plans hard ones.

    python -m tests.benchmarks.planning_beside --seconds 20 [--hard 2] [--database postgres]

One process of the server with its usual threads. One client asks a simple question that is planned already, again and
again: first alone, then beside others that ask what is planned until PLANNING_TIMEOUT, each time something new.
Prints both, in turns.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count, permutations
from pathlib import Path

from tests import postgresql
from tests.benchmarks.clients import Clients, Request, request
from tests.service import DEV_KEY, Client, Service, start_service

TYPES = [f"Kind{number}" for number in range(14)]
POLICY = f"""
actor User {{}}
resource Doc {{ permissions = ["read"]; roles = ["reader"]; "read" if "reader"; }}
{" ".join(f"resource {name} {{}}" for name in TYPES)}
linked(x, y) if near(x, y);
linked(y, x) if linked(x, y);
linked(x, z) if linked(x, y) and linked(y, z) and linked(z, x);
"""
TURNS = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--hard", type=int, default=1, help="clients that ask hard questions")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    options = parser.parse_args()
    with ExitStack() as stack:
        service = served(stack, options.database)
        client = service.client(DEV_KEY)
        _fill(client)
        simple = request(DEV_KEY, "/authorize", about("ann", "1"), lambda body: body == {"allowed": True})
        found: dict[str, list[float]] = {"alone": [], "beside": []}
        questions = _hard_questions()
        for _ in range(TURNS):
            found["alone"] += asked(service, simple, options.seconds / TURNS / 2)
            with _Planning(client, questions, options.hard):
                found["beside"] += asked(service, simple, options.seconds / TURNS / 2)
        for side, times in found.items():
            print(line(side, sorted(times)))
    return 0


def line(side: str, times: list[float]) -> str:
    at = {share: times[min(int(share * len(times)), len(times) - 1)] * 1000 for share in (0.5, 0.9, 0.99, 1)}
    return (
        f"{side:8}" + "".join(f"  {share:4.0%} {value:7.1f} ms" for share, value in at.items()) + f"  of {len(times)}"
    )


def served(stack: ExitStack, kind: str, **more: str) -> Service:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    url = f"sqlite:///{folder / 'facts.sqlite3'}"
    if kind == "postgres":
        server = postgresql.start()
        if server is None:
            raise SystemExit("no PostgreSQL can be started here")
        stack.callback(server.stop)
        url = server.create("benchmark")
    variables = {"SECRET_KEY": "4 benchmarks: 0123456789 abcdefgh", "LOG_LEVEL": "ERROR"} | more
    service = start_service(folder, url, "--dev", "--workers", "1", **variables)
    stack.callback(service.stop)
    return service


def _fill(client: Client) -> None:
    client.post("/policy", {"src": POLICY}).raise_for_status()
    facts = [fact("has_role", ("User", "ann"), ("String", "reader"), ("Doc", "1"))]
    facts += [fact("near", (one, "1"), (other, "2")) for one in TYPES for other in TYPES]
    client.post("/batch", [{"inserts": facts}]).raise_for_status()


def fact(predicate: str, *args: tuple[str, str]) -> dict:
    return {"predicate": predicate, "args": [{"type": kind, "id": text} for kind, text in args]}


def about(actor: str, resource: str) -> dict:
    named = {"actor_type": "User", "actor_id": actor, "resource_type": "Doc", "resource_id": resource}
    return {**named, "action": "read"}


def _hard_questions() -> Iterator[dict]:
    """Each of another shape: what was refused a moment ago is refused at once."""
    for number in count(2):
        for names in permutations(TYPES, number):
            calls = [["linked", [f"v{index}", f"v{index + 1}"]] for index in range(number - 1)]
            constraints = {f"v{index}": {"type": name} for index, name in enumerate(names)}
            yield {"predicate": calls[0], "calls": calls[1:], "constraints": constraints, "context_facts": []}


def asked(service: Service, simple: Request, seconds: float) -> list[float]:
    port = int(service.origin.rpartition(":")[2])
    clients = Clients(port, 1)
    try:
        return clients.ask([simple], seconds).times
    finally:
        clients.close()


class _Planning:
    """So many clients that ask hard questions, one after the other, while it lasts."""

    def __init__(self, client: Client, questions: Iterator[dict], clients: int):
        self.client, self.questions = client, questions
        self.lock, self.is_over = threading.Lock(), False
        self.threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def __enter__(self) -> None:
        for thread in self.threads:
            thread.start()
        time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        for thread in self.threads:
            thread.join()

    def _ask(self) -> None:
        while not self.is_over:
            with self.lock:
                question = next(self.questions)
            answer = self.client.post("/evaluate_query", question)
            assert answer.status_code == 400 and "PLANNING_TIMEOUT" in answer.text, answer.text


if __name__ == "__main__":
    sys.exit(main())
