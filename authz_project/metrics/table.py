"""The table of metrics: their names, their meanings and their labels.

Every label has few values, however many callers there are: endpoints are those of the table of endpoints, methods
those of HTTP, kinds those that the code has. None is ever an id, a predicate, a type, or a path that nobody serves.
"""

from typing import NamedTuple

PREFIX = "authz_"

_QUICK = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_ANSWER = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_MANY = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000)


class Metric(NamedTuple):
    name: str  # without its prefix
    kind: str  # counter, histogram or gauge
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()  # of a histogram: their upper bounds
    mode: str = "livesum"  # of a gauge: how the client combines those of several processes

    @property
    def whole(self) -> str:
        """Return its name in Prometheus: `requests` -> `authz_requests_total`."""
        return f"{PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "counter", text, labels)


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Metric:
    return Metric(name, "histogram", text, labels, buckets)


def _gauge(name: str, text: str, *labels: str, mode: str = "livesum") -> Metric:
    return Metric(name, "gauge", text, labels, mode=mode)


OF_WORKERS = (
    _counter("requests", "Requests that were answered", "endpoint", "method", "code"),
    _histogram("request_seconds", "Time from a request's turn to its answer", _ANSWER, "endpoint"),
    _histogram("wait_seconds", "Time spent waiting for a thread, a connection, or a turn to change", _QUICK, "of"),
    _histogram("statement_seconds", "Time of statements that questions send to the database", _QUICK),
    _counter("statements_failed", "Statements of questions that ended in an error"),
    _counter("decisions", "Answers of questions: one for each check, one for each list", "endpoint", "outcome"),
    _counter("rows_answered", "Results in lists that were answered", "endpoint"),
    _counter("answers_kept", "Questions answered from memory, after the database confirmed it"),
    _gauge("questions_a_minute", "Questions that were answered within the last minute"),
    _counter("statements_compiled", "Kinds of questions that were compiled"),
    _counter("statements_found", "Questions whose kind was compiled before"),
    _histogram("compilation_seconds", "Time to compile a statement, or a policy", _QUICK, "of"),
    _counter("policy_compilations", "Policies that were compiled", "outcome"),
    _counter("facts_inserted", "Facts that are new since a committed change"),
    _counter("facts_deleted", "Facts that ended with a committed change"),
    _counter("revisions", "Committed changes", "kind"),
    _histogram("batch_entries", "Facts and patterns in one request that changes facts", _MANY),
    _histogram("commit_changes", "Changes that were committed together", _MANY[:7]),
    _gauge("loads_under_way", "Loads of many facts that are under way"),
    _counter("loads", "Loads of many facts that came to their end", "outcome"),
    _gauge("threads_busy", "Threads that answer now", "pool"),
    _gauge("threads", "Threads that may answer at the same time", "pool"),
    _gauge("requests_waiting", "Requests that wait for a thread", "pool"),
    _gauge("connections_open", "Connections to the database"),
    _counter("connections_opened", "Connections to the database that were made"),
    _counter("connections_lost", "Connections to the database that turned out to be dead"),
    _gauge("replica_used", "Whether questions go to the replica: 1, or 0 where not", "replica", mode="livemin"),
    _gauge("replica_lag_seconds", "Seconds that the replica is behind the primary", "replica", mode="livemax"),
    _gauge("replica_position", "Bytes of the write-ahead log that the replica has replayed", "replica", mode="livemax"),
    _counter("replica_answers", "Answers of a replica, and what the primary gave instead", "replica", "outcome"),
    _counter("decision_log_lines", "Decisions that were written to the decision log, or dropped", "outcome"),
    _gauge("process_resident_memory_bytes", "Memory of a process", "process"),
    _counter("process_cpu_seconds", "Processor time of workers", "process"),
)
OF_SERVER = (
    _gauge("workers", "Worker processes that are there"),
    _counter("workers_ended", "Worker processes that have ended since the server began"),
    _gauge("start_time_seconds", "When the server began, in seconds since 1970"),
    _gauge("build_info", "What runs here; its value is 1", "version", "python", "database"),
)
METRICS = {metric.name: metric for metric in (*OF_WORKERS, *OF_SERVER)}
