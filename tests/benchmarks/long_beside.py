"""How long simple questions wait while others that the same worker answers take long in the database.

    python -m tests.benchmarks.long_beside --seconds 20 [--long 4] [--database postgres]

One process of the server with its usual threads, which keeps no answers. One client asks a simple question again and
again: first alone, then beside so many that ask what takes a second or more. Prints both, in turns.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from contextlib import ExitStack

from tests.benchmarks.clients import request
from tests.benchmarks.planning_beside import about, asked, fact, line, served
from tests.service import DEV_KEY, Client

POLICY = """
actor User {}
resource Doc { permissions = ["read"]; roles = ["reader"]; "read" if "reader"; }
larger(x: Doc, y: Doc) if size(x, n) and size(y, m) and n > m;
"""
SIZES = 2_500  # of documents, all the same: each is compared with each, and none is larger
TURNS = 4
LONG_QUESTION = {"predicate": ["larger", ["x", "y"]], "constraints": {"x": {"type": "Doc"}, "y": {"type": "Doc"}}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--long", type=int, default=4, help="clients that ask long questions")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    options = parser.parse_args()
    with ExitStack() as stack:
        service = served(stack, options.database, ANSWER_CACHE="0", STATEMENT_TIMEOUT="60")
        client = service.client(DEV_KEY)
        fill(client)
        simple = request(DEV_KEY, "/authorize", about("ann", "1"), lambda body: body == {"allowed": True})
        found: dict[str, list[float]] = {"alone": [], "beside": []}
        for _ in range(TURNS):
            found["alone"] += asked(service, simple, options.seconds / TURNS / 2)
            with Asking(client, options.long) as others:
                found["beside"] += asked(service, simple, options.seconds / TURNS / 2)
            print(f"{others.answers} long answers", flush=True)
        for side, times in found.items():
            print(line(side, sorted(times)))
    return 0


def fill(client: Client) -> None:
    client.post("/policy", {"src": POLICY}).raise_for_status()
    facts = [fact("has_role", ("User", "ann"), ("String", "reader"), ("Doc", "1"))]
    facts += [fact("size", ("Doc", str(number)), ("Integer", "7")) for number in range(SIZES)]
    client.post("/batch", [{"inserts": facts}]).raise_for_status()


class Asking:
    """So many clients that ask the long question, again and again, while it lasts."""

    def __init__(self, client: Client, clients: int):
        self.client, self.is_over, self.answers = client, False, 0
        self.threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def __enter__(self) -> Asking:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        for thread in self.threads:
            thread.join()

    def _ask(self) -> None:
        while not self.is_over:
            answer = self.client.post("/evaluate_query", LONG_QUESTION, timeout=300)
            if answer.status_code == 503:  # it is one too many: as it is told, it comes again
                time.sleep(float(answer.headers["Retry-After"]))
                continue
            assert answer.json() == {"results": []}, answer.text
            self.answers += 1


if __name__ == "__main__":
    sys.exit(main())
