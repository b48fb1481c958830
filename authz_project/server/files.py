"""How many files a process may have open, connections among them, and what that leaves for callers."""

import resource

MOST = 65_536  # nobody here needs more; some systems know no limit
CONNECTIONS = 1024  # of callers that a worker has at most; further ones wait to be accepted
LEAST = 16  # connections of callers, without which there is no point in starting
_OWN = 96  # open in a worker before anybody asks: programs, the listening socket, logs, and a few to spare
_OF_A_THREAD = 4  # with SQLite: the database, its WAL, the WAL's index, and a temporary file of a statement


class TooFewFiles(Exception):
    """A worker may not open enough files to take even `LEAST` connections; `message` says what to do."""

    def __init__(self, limit: int, needed: int):
        self.message = (
            f"a process may open {limit} files here, and {needed} are needed: raise the limit"
            " (`ulimit -n`, or LimitNOFILE= of systemd), or give each worker fewer --threads"
        )
        super().__init__(self.message)


def allow_as_many_as_possible() -> None:
    """Raise the limit of open files to the hard limit, `MOST` at most. Child processes inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_of_worker(threads: int) -> int:
    """Return how many connections a worker may take without running out of files; raise `TooFewFiles` below `LEAST`."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return CONNECTIONS
    answering = max(1, threads - 1)
    # For each answering thread: itself, four more for what takes long (`MORE` in `intake`), and one that makes changes.
    own = _OWN + 6 * answering * _OF_A_THREAD
    if limit < own + LEAST:
        raise TooFewFiles(limit, own + LEAST)
    return min(CONNECTIONS, limit - own)
