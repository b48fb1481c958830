"""How many files a process may have open, connections among them, and what that leaves for callers."""

import resource

MOST = 65_536  # nobody here needs more; some systems know no limit
CONNECTIONS = 1024  # of callers with one worker, where there are files enough; who comes then waits to be taken
LEAST = 16  # connections of callers, without which there is no point in starting
_OWN = 96  # open in a worker before anybody asks: programs, the listening socket, logs, and a few to spare
_OF_A_THREAD = 4  # with SQLite: the database, its log, the log's index, and what a statement needs for itself


class TooFewFiles(Exception):
    """The worker could not even take its callers; `message` says what to do."""

    def __init__(self, limit: int, needed: int):
        self.message = (
            f"a process may open {limit} files here, and {needed} are needed: raise the limit"
            " (`ulimit -n`, or LimitNOFILE= of systemd), or give each worker fewer --threads"
        )
        super().__init__(self.message)


def allow_as_many_as_possible() -> None:
    """Up to what the system allows without asking anybody; processes started from here have the same."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_of_worker(threads: int) -> int:
    """How many callers' connections a worker takes, so that it never runs out of files; raises `TooFewFiles`."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return CONNECTIONS
    answering = max(1, threads - 1)
    own = _OWN + 6 * answering * _OF_A_THREAD  # they, four times as many for what takes long, and who makes changes
    if limit < own + LEAST:
        raise TooFewFiles(limit, own + LEAST)
    return min(CONNECTIONS, limit - own)
