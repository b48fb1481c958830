"""What a question takes by AuthZEN, beside the same question below /api: processor time of an answer.

    python -m tests.benchmarks.authzen [--facts 100000] [--database postgres] [--seconds 2] [--rounds 5]

One server, which keeps no answers, is asked both ways in turns: checks one by one and in batches of 50. To
be met: an evaluation in 1.1 of the time of /authorize, a batch in 3 times that of /authorize_each. Every answer is
compared with what the statement by hand says of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from random import Random
from statistics import median

import orjson

from tests.benchmarks.again import AT_ONCE, BATCHES, Side, batch_of, forgetting, parsed
from tests.benchmarks.clients import Request
from tests.benchmarks.generate import Size
from tests.benchmarks.kinds import kinds
from tests.benchmarks.served import Served, served

MARKS = {"one by one": 1.1, f"{AT_ONCE} at once": 3.0}


def main() -> int:
    options, met = parsed(), True
    with served(options.database, Size(options.facts)) as server, forgetting(server) as service:
        side = Side(service, server.url, options.clients)
        for name, ours, theirs in pairs(server):
            taken: list[list[float]] = [[], []]
            for turn in range(options.rounds + 1):
                for place in (0, 1) if turn % 2 else (1, 0):
                    taken[place].append(side.milliseconds((ours, theirs)[place], options.seconds))
            one, other = (median(each[1:]) for each in taken)  # the first is to warm up
            ratio, mark = other / one, MARKS.get(name)
            met &= mark is None or ratio <= mark
            told = "" if mark is None else "met" if ratio <= mark else "not met"
            print(f"{name:16}{one:9.3f} ms{other:9.3f} ms by AuthZEN{ratio:8.2f}  {told}", flush=True)
    return 0 if met else 1


def pairs(server: Served) -> Iterator[tuple[str, Sequence[Request], Sequence[Request]]]:
    """The same questions below /api and by AuthZEN."""
    rng = Random(3)
    checks = [
        each
        for kind in kinds(server)
        if kind.path == "/authorize" and "context" not in kind.name
        for each in kind.requests
    ]
    rng.shuffle(checks)
    yield "one by one", checks, [evaluation_of(each) for each in checks]
    batches = [rng.sample(checks, AT_ONCE) for _ in range(BATCHES)]
    at_once = [evaluations_of(batch) for batch in batches]
    yield f"{AT_ONCE} at once", [batch_of(server, batch) for batch in batches], at_once


def evaluation_of(check: Request) -> Request:
    body = asked_by(check)
    return resent(check, "/access/v1/evaluation", body, lambda answer: check.is_right({"allowed": answer["decision"]}))


def evaluations_of(checks: Sequence[Request]) -> Request:
    def is_right(answer: dict) -> bool:
        found = answer["evaluations"]
        return all(check.is_right({"allowed": one["decision"]}) for check, one in zip(checks, found, strict=True))

    return resent(checks[0], "/access/v1/evaluations", {"evaluations": [asked_by(each) for each in checks]}, is_right)


def asked_by(check: Request) -> dict:
    """The body of /authorize in AuthZEN's words."""
    body = orjson.loads(check.sent.partition(b"\r\n\r\n")[2])
    return {
        "subject": {"type": body["actor_type"], "id": body["actor_id"]},
        "action": {"name": body["action"]},
        "resource": {"type": body["resource_type"], "id": body["resource_id"]},
    }


def resent(check: Request, path: str, body: dict, is_right: Callable[[dict], bool]) -> Request:
    """With the same head, but for the path and the length."""
    text = orjson.dumps(body)
    key = check.sent.partition(b"Bearer ")[2].partition(b"\r\n")[0].decode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    return Request(head.encode() + text, is_right)


if __name__ == "__main__":
    sys.exit(main())
