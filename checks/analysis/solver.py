"""The program that runs clingo, in a process of its own: a policy can make its answer set program very large.

Arguments: the limits of its memory in bytes and of its processor time in seconds. It reads one task per line, as JSON,
and writes one answer per line. It imports nothing else of the project. It ends when a task takes more time or memory.
"""

import json
import os
import resource
import signal
import sys
import time
from typing import Any

import clingo

OPTIONS = ["--warn=none", "--configuration=trendy"]
IMPROVING = 1.0  # seconds in which better models are searched, once there is one
GRACE = 0.3  # seconds that an answer may be late: reading a program cannot be interrupted, except by the alarm


def main() -> None:
    os.nice(10)  # a server's answers come first
    memory, seconds = (int(word) for word in sys.argv[1:3])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    for line in sys.stdin:
        program, seconds = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, seconds + GRACE)
        print(json.dumps(solved(program, seconds)), flush=True)
        signal.setitimer(signal.ITIMER_REAL, 0)


def solved(program: str, seconds: float) -> tuple[list[Any] | None, bool]:
    """Return the best model found, and whether the search was complete; without a model, it then has none."""
    end = time.monotonic() + seconds
    control = clingo.Control(OPTIONS)
    control.add("base", [], program)
    control.ground([("base", [])])
    found = None
    with control.solve(yield_=True, async_=True) as handle:
        while handle.wait(max(0, end - time.monotonic())) and (model := handle.model()) is not None:
            end = end if found else min(end, time.monotonic() + IMPROVING)
            found = [[each.name, [arg.number for arg in each.arguments]] for each in model.symbols(shown=True)]
            handle.resume()
        handle.cancel()
        return found, bool(handle.get().exhausted)


if __name__ == "__main__":
    main()
