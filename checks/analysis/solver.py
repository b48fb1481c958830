"""The program that runs clingo. It is started in a process of its own, which its caller kills when it takes too long.

Arguments: the limits of its memory in bytes and of its processor time in seconds. It reads one task per line, as JSON,
and writes one answer per line. It imports nothing else of the project.
"""

import json
import os
import resource
import sys
import time
from typing import Any

import clingo

OPTIONS = ["--warn=none", "--heuristic=Domain", "--configuration=trendy"]
GLANCE = 0.02  # seconds between looks at the clock


def main() -> None:
    os.nice(10)  # a server's answers come first
    memory, seconds = (int(word) for word in sys.argv[1:3])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    for line in sys.stdin:
        try:
            answer = solved(**json.loads(line))
        except MemoryError:
            answer = {"failure": "memory"}
        print(json.dumps(answer), flush=True)


def solved(program: str, seconds: float, improving: float) -> dict[str, Any]:
    """Return the best model found, and whether the search was complete; without a model, it then has none.

    After the first model, better ones are searched for at most `improving` seconds.
    """
    end = time.monotonic() + seconds
    control = clingo.Control(OPTIONS)
    control.add("base", [], program)
    control.ground([("base", [])])
    best: list[list[Any]] = []
    is_found = False

    def keep(model: clingo.Model) -> None:
        nonlocal end, is_found
        if not is_found:
            end = min(end, time.monotonic() + improving)
        is_found = True
        best[:] = [[each.name, [arg.number for arg in each.arguments]] for each in model.symbols(shown=True)]

    with control.solve(on_model=keep, async_=True) as handle:
        while not handle.wait(GLANCE) and time.monotonic() < end:
            pass
        handle.cancel()
        is_complete = bool(handle.get().exhausted)
    return {"model": best if is_found else None, "is_complete": is_complete}


if __name__ == "__main__":
    main()
