"""Metrics of a server: of all workers together, exact whatever becomes of one, with labels that are few."""

import gzip
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import requests
from prometheus_client import values
from prometheus_client.parser import text_string_to_metric_families

from authz_project import metrics
from authz_project.metrics import METRICS, OF_WORKERS, PAUSE, PREFIX, Worker
from authz_project.observers import METHODS, AnsweredRequest, name_of
from authz_project.server.supervisor import worker_ended, worker_started
from policy.core.journal import Kind
from policy.core.spans import Part
from policy.replicas.reading import UNCHECKED, ReplicaStatus
from tests.faults.limits import workers_of
from tests.postgresql import free_port
from tests.service import DEV_KEY, ROOT, Service, start_service

POLICY = 'actor User {}\nresource Doc { permissions = ["read"]; roles = ["reader"]; "read" if "reader"; }'
WITHIN = 90  # seconds
Labels = frozenset[tuple[str, str]]


class Scrape:
    """What one look at the metrics says."""

    def __init__(self, text: str):
        self.text = text
        self.families = {each.name: each for each in text_string_to_metric_families(text)}
        self.samples = [sample for each in self.families.values() for sample in each.samples]

    def sum(self, name: str, **labels: str) -> float:
        return sum(
            each.value
            for each in self.samples
            if each.name == f"{PREFIX}{name}" and labels.items() <= each.labels.items()
        )

    def values(self, label: str) -> set[str]:
        return {each.labels[label] for each in self.samples if label in each.labels}


class Counting:
    """A server with metrics."""

    def __init__(self, service: Service, port: int):
        self.service, self.port = service, port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/metrics"

    def scrape(self) -> Scrape:
        answer = requests.get(self.url, timeout=60)
        assert answer.status_code == 200
        return Scrape(answer.text)

    def once(self, is_so) -> Scrape:
        """The first look at which it is so: workers write down what they counted twice a second."""
        until = time.monotonic() + WITHIN
        while not is_so(found := self.scrape()):
            assert time.monotonic() < until, found.text
            time.sleep(0.2)
        return found

    def quiet(self) -> Scrape:
        """A look once all that was asked before is written down."""
        before = self.scrape()
        while True:
            time.sleep(3 * PAUSE)
            found = self.scrape()
            if found.sum("workers") == 2 and found.sum("requests_total") == before.sum("requests_total"):
                return found
            before = found

    @property
    def workers(self) -> list[psutil.Process]:
        return workers_of(self.service)


@contextmanager
def counting(home: Path, url: str, *options: str, **variables: str) -> Iterator[Counting]:
    port = free_port()
    given = ("--dev", "--workers", "2", "--metrics-port", str(port), *options)
    service = start_service(home, url, *given, TMPDIR=str(home), SECRET_KEY="only for these tests " * 3, **variables)
    try:
        yield Counting(service, port)
    finally:
        if service.process.poll() is None:
            service.stop()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def counted(request, migrated_urls, tmp_path_factory) -> Iterator[Counting]:
    """A server of two workers, with a policy."""
    home = tmp_path_factory.mktemp("metrics")
    with counting(home, migrated_urls(request.param, "metrics"), DECISION_LOG=str(home / "log.jsonl")) as server:
        assert server.service.client().post("/policy", {"src": POLICY}).status_code == 200
        yield server


def question(user: str = "ann", doc: str = "a") -> dict[str, str]:
    return {"actor_type": "User", "actor_id": user, "action": "read", "resource_type": "Doc", "resource_id": doc}


def reader(user: str, doc: str) -> dict[str, object]:
    args = [{"type": "User", "id": user}, {"type": "String", "id": "reader"}, {"type": "Doc", "id": doc}]
    return {"predicate": "has_role", "args": args}


def ask(server: Counting, number: int) -> None:
    """On connections of their own, so that both workers have some of them."""

    def one(place: int) -> int:
        return server.service.client().post("/authorize", question(f"user{place % 7}")).status_code

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(one, range(number))) == {200}


# ---- counting ----------------------------------------------------------------------------------------------------


def test_counts_are_exact_over_all_workers(counted):
    asked = {"endpoint": "/api/authorize", "code": "200", "method": "POST"}
    before = counted.quiet()
    ask(counted, 300)
    expected = before.sum("requests_total", **asked) + 300
    after = counted.once(lambda found: found.sum("requests_total", **asked) >= expected)
    assert after.sum("requests_total", **asked) == expected
    for name in ("decisions_total", "request_seconds_count"):
        assert after.sum(name, endpoint="/api/authorize") - before.sum(name, endpoint="/api/authorize") == 300
    in_memory, on_time = after.values("process"), after.sum("process_cpu_seconds_total")
    assert in_memory == {"1", "2", "main"} and on_time > before.sum("process_cpu_seconds_total")
    assert after.sum("process_resident_memory_bytes", process="1") > 10_000_000
    assert after.sum("statement_seconds_count") > before.sum("statement_seconds_count")
    assert after.sum("decisions_last_minute") >= 300
    waits = [after.sum("wait_seconds_count", of=of) for of in ("thread", "connection")]
    assert min(waits) > 0


def test_buckets_of_a_histogram_come_to_its_count(counted):
    ask(counted, 10)
    found = counted.scrape()
    for name, metric in METRICS.items():
        if metric.kind == "histogram":
            assert found.sum(f"{name}_bucket", le="+Inf") == found.sum(f"{name}_count"), name


def test_decisions_facts_and_revisions_are_counted_by_what_they_are(counted):
    client = counted.service.fresh_client()
    before = counted.quiet()
    assert client.post("/policy", {"src": POLICY}).status_code == 200
    facts = [reader("ann", f"d{number}") for number in range(5)]
    client.post("/batch", [{"inserts": facts}])
    client.post("/bulk_load", facts)
    client.delete("/facts", facts[0])
    client.post("/authorize", question("ann", "d1"))
    client.post("/authorize", question("ben", "d1"))
    for user in ("ann", "ben"):
        listed = {"actor_type": "User", "actor_id": user, "action": "read", "resource_type": "Doc", "page_size": 10_000}
        assert client.post("/list", listed).status_code == 200
    assert client.post("/policy", {"src": "resource"}).status_code == 400

    def since(name: str, **labels: str) -> float:
        return after.sum(name, **labels) - before.sum(name, **labels)

    after = counted.quiet()
    assert [since("decisions_total", outcome=each) for each in ("allowed", "denied", "listed", "empty")] == [1] * 4
    assert since("list_results_total", endpoint="/api/list") == 4
    assert (since("facts_inserted_total"), since("facts_deleted_total")) == (5, 1)
    assert (since("revisions_total", kind="facts"), since("revisions_total", kind="policy")) == (3, 1)
    assert since("loads_total", outcome="done") == 1
    assert since("batch_entries_sum") == 11
    assert since("decision_log_lines_total", outcome="written") == 4
    assert since("plan_cache_misses_total") >= 2


def test_what_runs_is_told(counted):
    found = counted.once(lambda found: found.sum("connections_open") > 0)
    (build,) = found.families["authz_build_info"].samples
    assert build.value == 1 and re.match(r"(SQLite|PostgreSQL) \d+\.", build.labels["database"])
    assert found.sum("threads", pool="questions") == 6
    assert 0 < found.sum("connections_open") <= found.sum("connections_opened_total")
    assert found.sum("start_time_seconds") <= time.time() + 60


# ---- who asks ----------------------------------------------------------------------------------------------------

HOSTILE = [
    ("GET", "/api/has_role/User:ann"),
    ("GET", "/ann/../secret"),
    ("GET", "/docs/ann"),
    ("GET", "/static/ann.js"),
    ("GET", "/admin/ann/"),
    ("POST", "/api/facts?predicate=ann"),
    ("ANN", "/api/authorize"),
    ("PURGE", "/ann"),
    ("GET", "//ann//api/authorize"),
    ("POST", "/api/authorize/ann"),
    ("GET", "/%61nn%22%0aevil%7b"),
]


def test_labels_are_few_whatever_is_sent(counted):
    """However callers name their users, predicates, paths, methods and themselves: no label has any of it."""
    client = counted.service.fresh_client()
    for method, path in HOSTILE:
        headers = {"X-Request-ID": "ann", "traceparent": "ann", "Authorization": f"Bearer {DEV_KEY}"}
        requests.request(method, f"{counted.service.origin}{path}", headers=headers, timeout=60)
    client.post("/policy", {"src": POLICY.replace("reader", "ann_role")})
    client.post("/facts", {"predicate": "ann", "args": [{"type": "ann", "id": "ann"}]})
    client.post("/authorize", question("ann") | {"action": "ann", "resource_type": "ann"})
    requests.post(f"{counted.service.origin}/api/authorize", json=question(), timeout=60)  # without a key
    requests.get(f"{counted.service.origin}/{'x' * 5_000}", timeout=60)
    raw = "GET /api/ann HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(counted.service.origin.rpartition(":")[2]))) as connection:
        connection.sendall(raw.encode())
        connection.recv(1_000)
    found = counted.once(
        lambda found: (
            found.sum("requests_total", endpoint="other", code="404") >= 5
            and found.sum("requests_total", method="_OTHER") >= 2
        )  # of whichever workers met them: each tells its own
    )
    own = found.values("endpoint") - {"admin", "docs", "static", "other"}
    assert own and all(name_of(endpoint) == endpoint for endpoint in own)
    assert found.values("method") <= METHODS | {"_OTHER"} and "_OTHER" in found.values("method")
    assert all(100 <= int(code) <= 599 for code in found.values("code"))
    assert found.values("kind") <= {each.value for each in Kind}
    assert "ann" not in found.text.replace("cannot", "") and "evil" not in found.text


def test_every_metric_and_label_is_one_of_the_table(counted):
    found = counted.scrape()
    allowed = {metric.whole: set(metric.labels) for metric in METRICS.values()}
    for sample in found.samples:
        name = re.sub(r"_(bucket|sum|count)$", "", sample.name) if sample.name not in allowed else sample.name
        assert set(sample.labels) - {"le"} == allowed[name], sample


def test_it_listens_to_this_machine_alone(counted):
    parent = psutil.Process(counted.service.process.pid)
    assert parent.num_threads() == 1  # it forks: a lock that another thread holds then would be held for good
    sockets = [each for process in parent.children() for each in process.net_connections("tcp")]
    places = {each.laddr.ip for each in sockets if each.laddr.port == counted.port}
    assert places == {"127.0.0.1"}


def test_only_metrics_are_there(counted):
    assert requests.get(counted.url.replace("/metrics", "/api/facts"), timeout=60).status_code == 404
    assert requests.get(f"{counted.service.origin}/metrics", timeout=60).status_code == 404
    packed = requests.get(counted.url, headers={"Accept-Encoding": "gzip"}, timeout=60, stream=True).raw.read()
    assert b"authz_workers" in gzip.decompress(packed)


# ---- workers that end --------------------------------------------------------------------------------------------


@pytest.mark.long
def test_what_a_killed_worker_counted_is_kept_and_what_it_was_is_dropped(tmp_path, migrated_urls):
    home = tmp_path
    with counting(home, migrated_urls("sqlite", "killed")) as server:
        server.service.client().post("/policy", {"src": POLICY})
        asked = {"endpoint": "/api/authorize", "code": "200"}
        ask(server, 200)
        before = server.once(lambda found: found.sum("requests_total", **asked) == 200 and found.sum("workers") == 2)
        for worker in server.workers:
            worker.kill()
        after = server.once(lambda found: found.sum("workers_ended_total") == 2)
        for name in ("request_seconds_count", "statement_seconds_count", "decisions_total"):
            assert after.sum(name) >= before.sum(name)
        assert after.sum("requests_total", **asked) == 200
        back = server.once(lambda found: found.sum("workers") == 2 and found.sum("threads", pool="questions") == 6)
        assert back.values("process") == {"1", "2", "main"}
        ask(server, 50)
        server.once(lambda found: found.sum("requests_total", **asked) == 250)
        (place,) = home.glob("authz-metrics-*")
        assert place.stat().st_mode & 0o777 == 0o700
        assert {each.stem.rpartition("_")[2] for each in place.iterdir()} == {"main", "scrapes", "1", "2"}
        server.service.stop()
        assert list(home.glob("authz-metrics-*")) == []


@pytest.mark.long
def test_what_a_killed_server_left_behind_goes_with_the_next_one(tmp_path, migrated_urls):
    url = migrated_urls("sqlite", "left")
    with counting(tmp_path, url) as server:
        processes = psutil.Process(server.service.process.pid).children()
        server.service.process.send_signal(signal.SIGKILL)
        server.service.process.wait(30)
        for each in processes:
            each.kill()
        psutil.wait_procs(processes, 30)
    (left,) = tmp_path.glob("authz-metrics-*")
    metrics.drop_old(tmp_path)
    assert left.exists()  # another server may be making it just now
    os.utime(left, (0, 0))
    metrics.drop_old(tmp_path)
    assert not left.exists()


def test_without_the_option_nothing_of_it_is_imported(services):
    service = services("sqlite")
    for process in (psutil.Process(service.process.pid), *psutil.Process(service.process.pid).children()):
        opened = [each.path for each in process.open_files()]
        assert not [each for each in opened if "authz-metrics" in each]
    code = "import sys, authz_project.wsgi, authz_project.server.intake; print('prometheus_client' in sys.modules)"
    variables = os.environ | {"DATABASE_URL": "sqlite:///none.sqlite3"}
    variables |= {"DJANGO_SETTINGS_MODULE": "authz_project.settings"}
    with tempfile.TemporaryDirectory() as home:
        ran = subprocess.run(
            [sys.executable, "-c", code], cwd=home, env=variables | {"PYTHONPATH": str(ROOT)}, stdout=-1, text=True
        )
    assert ran.stdout.strip() == "False"


@pytest.mark.parametrize(
    "options, said",
    [
        (["--port", "8123", "--metrics-port", "8123"], "--metrics-port must differ from --port"),
        (["--metrics-port", "0"], "Port must be between 1 and 65535, not '0'"),
        (
            ["--port", str(free_port()), "--metrics-port", "9464", "--metrics-host", "no.such.host.invalid"],
            "no.such.host.invalid",
        ),
    ],
)
def test_a_place_that_cannot_be_is_refused(options, said, tmp_path):
    variables = os.environ | {"DATABASE_URL": f"sqlite:///{tmp_path / 'a.sqlite3'}", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, ROOT / "manage.py", "serve", *options],
        cwd=tmp_path, env=variables, stdout=-1, stderr=-1, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode != 0 and said in ran.stderr


# ---- small parts -------------------------------------------------------------------------------------------------


@pytest.fixture
def worker(tmp_path, monkeypatch) -> Worker:
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)  # which it sets
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    metrics.write_to(tmp_path, "1")
    return Worker(1, {})


def counts(worker: Worker, tmp_path: Path) -> dict[tuple[str, Labels], float]:
    """What is in the files."""
    worker.look()
    samples = [sample for metric in metrics.merged(tmp_path) for sample in metric.samples]
    return {(each.name.removeprefix(PREFIX), frozenset(each.labels.items())): each.value for each in samples}


def test_values_come_into_the_bucket_of_the_first_bound_that_they_do_not_exceed(worker, tmp_path):
    for entries in (1, 2, 2, 3, 100_000):
        worker.noted(Part("change", 0.0, 0.0, {"entries": entries}))
    found = counts(worker, tmp_path)
    buckets = [found["batch_entries_bucket", frozenset({("le", le)})] for le in ("1.0", "2.0", "5.0", "+Inf")]
    assert buckets == [1, 3, 4, 5]
    assert found["batch_entries_sum", frozenset()] == 100_008


def seen(**given: object) -> AnsweredRequest:
    usual = {
        "endpoint": "/api/authorize", "method": "POST", "status": 200, "began": 0.0, "seconds": 0.01, "at": 0.0,
        "request_id": "", "environment": "", "key_id": None, "traceparent": "", "noted": (),
    }  # fmt: skip
    return AnsweredRequest(**usual | given)


def test_every_part_that_the_code_notes_is_counted(worker, tmp_path):
    noted = re.compile(r"spans\.(?:note|noted|lasting|add)\(\(?\"(\w+)\"")
    files = [
        file
        for name in ("authz_project", "checks", "facts", "localsql", "policy")
        for file in (ROOT / name).rglob("*.py")
    ]
    names = {"statement", "kept", "decision"}.union(*(noted.findall(file.read_text()) for file in files))
    assert len(names) >= 13
    facts = {
        "of": "thread", "rows": 1, "allowed": 1, "denied": 0, "entries": 1, "changes": 1, "kind": "facts",
        "inserted": 1, "deleted": 1, "space": "",
    }  # fmt: skip
    of_process = re.compile("process_|decisions_last_minute|connections_open$|requests_total|request_seconds")

    def of_parts() -> dict[tuple[str, Labels], float]:
        return {key: value for key, value in counts(worker, tmp_path).items() if not of_process.match(key[0])}

    for name in names:
        known = {"written": 1, "dropped": 1} if name == "log" else facts
        before = of_parts()
        worker.seen(seen(noted=[(name, 0.0, 0.001, known)]))
        within = of_parts()
        assert within != before, name
        worker.noted(Part(name, 0.0, 0.001, known))
        assert of_parts() != within, name


def test_dropped_decisions_are_counted_from_zero(tmp_path, settings, request):
    """An alert about their increase does not see one in the first value of a new series."""
    settings.DECISION_LOG = "-"
    worker = request.getfixturevalue("worker")
    assert counts(worker, tmp_path)["decision_log_lines_total", frozenset({("outcome", "dropped")})] == 0


def test_many_threads_lose_nothing(worker, tmp_path):
    key = ("requests_total", frozenset({("endpoint", "/api/authorize"), ("method", "POST"), ("code", "200")}))
    with ThreadPoolExecutor(4) as threads:
        working = [threads.submit(lambda: [worker.seen(seen()) for _ in range(5_000)]) for _ in range(4)]
        while not all(each.done() for each in working):
            worker.look()
    found = counts(worker, tmp_path)
    assert found[key] == found["request_seconds_count", frozenset({("endpoint", "/api/authorize")})] == 20_000


def test_who_takes_the_place_of_an_ended_worker_goes_on_with_its_counters(tmp_path, monkeypatch):
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    server = metrics.ServerMetrics(tmp_path, "SQLite")
    worker_started.connect(server.started)
    worker_ended.connect(server.ended)
    of_all = metrics.AllProcesses(tmp_path)
    for times in (1, 2):
        worker_started.send(None, number=1)
        metrics.write_to(tmp_path, "1")
        worker = Worker(1, {})
        worker.noted(Part("lost", 0.0, 0.0, {}))
        worker.look()
        told = {metric.name: metric for metric in of_all.collect()}
        assert [each.value for each in told["authz_connections_lost"].samples] == [times]
        assert [each.value for each in told["authz_workers"].samples] == [1]
        worker_ended.send(None, number=1)
        told = {metric.name: metric for metric in of_all.collect()}
        assert [each.value for each in told["authz_connections_lost"].samples] == [times]
        assert "authz_decisions_last_minute" not in told
        assert [each.value for each in told["authz_workers_ended"].samples] == [times]


def test_a_file_that_is_being_made_is_passed_by(tmp_path):
    (tmp_path / "counter_1.db").touch()
    assert list(metrics.merged(tmp_path)) == []
    assert metrics.value_of(tmp_path, "authz_requests") is None


def test_all_metrics_have_names_and_words_of_their_own():
    assert len({metric.whole for metric in METRICS.values()}) == len(METRICS)
    assert all(re.fullmatch(r"[A-Z].*[^.]", metric.help) for metric in METRICS.values())
    assert all(metric.buckets == tuple(sorted(metric.buckets)) for metric in OF_WORKERS)


def test_replicas_are_told_by_what_each_is_and_did(worker, tmp_path, monkeypatch):
    used, away, unknown = (
        ReplicaStatus("db2", True, "", 100, 0.5, 1, 13, 10),
        ReplicaStatus("db3", False, "away", None, None, 0, 0, 0),
        ReplicaStatus("db4", False, UNCHECKED, None, None, 0, 0, 0),
    )
    told = [used, away, unknown]
    monkeypatch.setattr(metrics, "statuses", lambda: told)
    worker.look()
    told[0] = used._replace(asked=0, tries=15, answers=12, lag=2.0)
    found = counts(worker, tmp_path)

    def value(name: str, **labels: str) -> float | None:
        return found.get((name, frozenset({"replica": "db2", **labels}.items())))

    assert [value("replica_answers_total", outcome=each) for each in ("counted", "repeated")] == [12, 3]
    assert [value(f"replica_{name}") for name in ("used", "lag_seconds", "position")] == [1, 2, 100]
    assert found["replica_used", frozenset({("replica", "db3")})] == 0
    assert ("replica_used", frozenset({("replica", "db4")})) not in found
