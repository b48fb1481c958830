"""`manage.py serve`, as its own process."""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from argparse import ArgumentTypeError
from pathlib import Path

import pytest
import requests
from django.core.management.base import CommandError

from authz_project import __version__
from authz_project.management.commands import serve
from authz_project.settings import secret_file
from tests.conversation import play
from tests.sampling import some
from tests.service import DEV_KEY, ROOT, start_service
from tests.test_wire_cases import CASES

SECRET = "9f2c1b7a4e8d6035f1a2b3c4d5e6f708"


@pytest.fixture
def sqlite_url(migrated_urls):
    return migrated_urls("sqlite", "serve")


@pytest.fixture(params=some(("sqlite", "postgresql"), 2))
def new_url(request, migrated_urls):
    return migrated_urls(request.param, f"serve_{request.node.name.split('[')[0][-40:]}")


def refusal(tmp_path, *options: str, **variables: str) -> str:
    """What `serve` says when it refuses to start."""
    done = subprocess.run(
        [sys.executable, ROOT / "manage.py", "serve", *options], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"DATABASE_URL": "", **variables}, timeout=60,
    )  # fmt: skip
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


def test_no_key_is_made_where_what_is_printed_is_collected(tmp_path):
    service = start_service(tmp_path, "", "--workers", "1", "--no-first-key")
    try:
        said = service.log.read_text()
        assert "e_default_" not in said and "No API key exists. " in said and "api_keys create`" in said
    finally:
        assert service.stop() == 0


def test_it_starts_from_nothing_and_shows_the_first_key_once(tmp_path):
    service = start_service(tmp_path, "", "--workers", "1")
    try:
        key = re.search(r"e_default_\w+", service.log.read_text())[0]
        assert service.client(key).get("/facts").json() == []
        assert (tmp_path / "authz.sqlite3.secret").stat().st_mode & 0o777 == 0o600
        assert requests.get(f"{service.origin}/static/admin/css/base.css", timeout=10).status_code == 200
        assert requests.get(f"{service.origin}/admin/", timeout=10).status_code == 200
    finally:
        assert service.stop() == 0
    again = start_service(tmp_path, "", "--workers", "1")
    try:
        assert "e_default_" not in again.log.read_text()
        assert again.client(key).get("/facts").status_code == 200
    finally:
        again.stop()


def test_it_says_what_it_serves(tmp_path):
    service = start_service(tmp_path, "", "--workers", "1", "--threads", "3", PUBLIC_URL="https://a.example")
    service.stop()
    said = service.log.read_text()
    assert said.startswith(f"authz {__version__}, Python 3.")
    assert f"  database  SQLite 3.{sqlite3.sqlite_version[2:]}, {tmp_path}/authz.sqlite3\n" in said
    assert "  policy    none in `default`\n            load one with `python manage.py load_policy FILE`" in said
    assert f"  API       {service.origin}/api, 1 process of 3 threads\n" in said
    assert f"  admin     {service.origin}/admin/; create a login with `python manage.py createsuperuser`\n" in said
    assert f"  docs      {service.origin}/docs/\n" in said
    assert re.search("^  not set   ALLOWED_HOSTS, DECISION_LOG: recommended", said, re.MULTILINE)
    assert len(said.splitlines()) <= 11


def test_it_says_no_more_than_it_has_to(tmp_path):
    url, whole = f"sqlite:///{tmp_path / 'authz.sqlite3'}", {"ALLOWED_HOSTS": "authz.example", "DECISION_LOG": "log"}
    for words in (["migrate"], ["load_example", "code"], ["createsuperuser", "--noinput"]):
        subprocess.run(
            [sys.executable, ROOT / "manage.py", *words], cwd=tmp_path, check=True, capture_output=True,
            env=os.environ | {
                "DATABASE_URL": url, "DJANGO_SUPERUSER_USERNAME": "root", "DJANGO_SUPERUSER_PASSWORD": SECRET,
                "DJANGO_SUPERUSER_EMAIL": "root@a.example",
            },
        )  # fmt: skip
    service = start_service(tmp_path, url, "--workers", "1", PUBLIC_URL="https://a.example", **whole)
    service.stop()
    said = service.log.read_text()
    assert "  policy    version 1 of `default`, since 2" in said
    assert "not set" not in said and "createsuperuser" not in said and "load_policy" not in said


def test_nothing_of_development_is_left_without_the_flag(tmp_path, sqlite_url):
    start_service(tmp_path, sqlite_url, "--dev", "--workers", "1").stop()
    service = start_service(tmp_path, sqlite_url, "--workers", "1")
    try:
        assert service.client(DEV_KEY).get("/facts").status_code == 401
        assert requests.post(f"{service.origin}/test_environment", timeout=10).status_code == 404
    finally:
        service.stop()


@pytest.mark.parametrize(
    "secret", some(("changeme", "x" * 50, "short but random 8f3a", "django-insecure-8f3a9c1b7e5d2046a1b2c3d4e5f6"), 4)
)
def test_a_secret_that_can_be_guessed_is_refused(tmp_path, secret):
    assert "SECRET_KEY can be guessed" in refusal(tmp_path, SECRET_KEY=secret)


def test_postgresql_needs_a_secret_of_its_own(tmp_path):
    told = refusal(tmp_path, DATABASE_URL="postgres://nobody@127.0.0.1:1/none", SECRET_KEY="")
    assert "SECRET_KEY is not set" in told


def test_an_unknown_kind_of_database_is_refused(tmp_path):
    assert "DATABASE_URL must begin with" in refusal(tmp_path, DATABASE_URL="mysql://root@localhost/x")


def test_a_port_that_is_taken_is_refused(tmp_path, service):
    assert "Cannot listen on" in refusal(tmp_path, "--dev", "--port", service.origin.rpartition(":")[2])


def test_options_that_cannot_be_used_are_refused():
    for host in ("\udcff", "x" * 64 + ".example"):
        with pytest.raises(CommandError, match=r"Cannot listen on .*: no host can have this name"):
            serve.addresses_of(host)
    for url in ("http://a.example:99999", "http://a.example:0", "http://[a", "ftp://a.example", "http:///x"):
        with pytest.raises(ArgumentTypeError, match="must be a URL"):
            serve.url_of_service(url)
    assert serve.url_of_service("http://[::1]:8080/api/") == "http://[::1]:8080"
    with pytest.raises(CommandError, match="needs an API key"):
        serve.key_of("e_default_\u2026")


def test_a_secret_that_is_no_text_is_told(tmp_path, sqlite_url):
    secret_file(Path(sqlite_url.removeprefix("sqlite:///"))).write_bytes(b"\xff")
    told = refusal(tmp_path, DATABASE_URL=sqlite_url, SECRET_KEY="")
    assert "authz.sqlite3.secret is not a secret" in told


@pytest.mark.parametrize("stop", some((signal.SIGTERM, signal.SIGINT), 2))
@pytest.mark.parametrize("options", [(), ("--event-loop",)], ids=["", "event loop"])
def test_requests_in_flight_are_finished(tmp_path, sqlite_url, options, stop):
    service = start_service(tmp_path, sqlite_url, "--dev", "--workers", "1", *options, SECRET_KEY=SECRET)
    facts = [{"predicate": "p", "args": [{"type": "T", "id": f"{n}"}]} for n in range(60_000)]
    body, client, answers = json.dumps([{"inserts": facts}]).encode(), service.client(), []
    sender = threading.Thread(target=lambda: answers.append(client.request("POST", "/batch", data=body)))
    sender.start()
    time.sleep(0.6)
    service.process.send_signal(stop)
    sender.join(30)
    assert service.process.wait(30) == 0
    assert [answer.status_code for answer in answers] == [200]


@pytest.mark.skipif(sys.platform != "linux", reason="needs what Linux knows about connections")
def test_clients_that_are_slow_to_send_are_answered_when_the_server_stops(tmp_path, sqlite_url):
    """As on a busy machine: one was just answered and asks again, the other has connected and sent nothing yet."""
    service = start_service(tmp_path, sqlite_url, "--dev", "--workers", "1", SECRET_KEY=SECRET)
    address = ("127.0.0.1", int(service.origin.rpartition(":")[2]))
    question = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection(address, 10) as answered:
        answered.sendall(question)
        assert b"close" not in answered.recv(1000)
        service.process.terminate()
        time.sleep(0.3)
        with socket.create_connection(address, 10) as connected:
            answered.sendall(question)
            assert b"connection: close" in answered.recv(1000).lower()
            time.sleep(0.2)
            connected.sendall(question)
            assert b"connection: close" in connected.recv(1000).lower()
    assert service.process.wait(10) == 0


def test_chunked_bodies_are_read_and_limited(service):
    client = service.fresh_client()
    fact = b'[{"inserts":[{"predicate":"p","args":[{"type":"T","id":"x"}]}]}]'
    assert client.request("POST", "/batch", data=iter([fact[:20], fact[20:]])).status_code == 200
    assert len(client.get("/facts").json()) == 1
    answer = client.request("POST", "/batch", data=(b" " * 1024 for _ in range(11 * 1024)))
    assert (answer.status_code, set(answer.json())) == (413, {"message"})


def test_leading_slashes_do_not_matter(service):
    client = service.fresh_client()
    answer = requests.get(f"{service.origin}//api/facts", headers={"Authorization": f"Bearer {client.key}"}, timeout=10)
    assert answer.status_code == 200


@pytest.mark.parametrize("slashes", ["//", "///"])
def test_pages_of_the_admin_have_one_address(service, slashes):
    """A proxy may forward all but `/admin/`."""
    assert requests.get(f"{service.origin}{slashes}admin/login/", timeout=10).status_code == 404


def test_the_body_of_a_refused_request_does_not_hide_the_refusal(service):
    answer = requests.post(f"{service.origin}/api/batch", data=b" " * (20 * 1024 * 1024), timeout=60)
    assert answer.status_code == 413


def test_a_revoked_key_is_refused_by_every_process(tmp_path, new_url):
    service = start_service(tmp_path, new_url, "--dev", "--workers", "2", SECRET_KEY=SECRET)
    try:
        client = service.fresh_client()
        assert {client.get("/facts").status_code for _ in range(20)} == {200}
        subprocess.run(
            [sys.executable, ROOT / "manage.py", "api_keys", "revoke", client.key], cwd=tmp_path, check=True,
            env=os.environ | {"DATABASE_URL": new_url, "SECRET_KEY": SECRET}, capture_output=True,
        )  # fmt: skip
        assert {client.get("/facts").status_code for _ in range(20)} == {401}
    finally:
        service.stop()


def test_one_connection_is_enough(tmp_path, new_url):
    service = start_service(tmp_path, new_url, "--dev", "--workers", "1", "--threads", "1", SECRET_KEY=SECRET)
    try:
        client = service.fresh_client()
        codes: list[int] = []
        body = [{"inserts": [{"predicate": "p", "args": [{"type": "T", "id": "x"}]}]}]
        senders = [
            threading.Thread(target=lambda: codes.append(client.post("/batch", body).status_code)) for _ in range(8)
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        assert codes == [200] * 8
    finally:
        service.stop()


def test_a_half_sent_request_holds_nobody_up(service):
    with socket.create_connection(("127.0.0.1", int(service.origin.rpartition(":")[2]))) as half:
        half.sendall(b"POST /api/batch HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n[")
        assert service.fresh_client().get("/facts").status_code == 200


def test_the_public_interface_of_the_server_library_serves_as_well(tmp_path, sqlite_url):
    service = start_service(tmp_path, sqlite_url, "--dev", "--workers", "2", "--event-loop", SECRET_KEY=SECRET)
    for case in CASES:
        play(service, case)
    test_chunked_bodies_are_read_and_limited(service)
    test_leading_slashes_do_not_matter(service)
    test_the_body_of_a_refused_request_does_not_hide_the_refusal(service)
    test_a_half_sent_request_holds_nobody_up(service)
    for path in ("healthcheck", "readyz", "docs/", "admin/login/"):
        assert requests.get(f"{service.origin}/{path}", timeout=10).status_code == 200
    assert service.stop() == 0
    assert "Traceback" not in service.log.read_text() and "panic" not in service.log.read_text()


def test_one_module_knows_the_internals_of_the_server_library():
    files = [path for path in (ROOT / "authz_project").rglob("*.py") if "granian._granian" in path.read_text()]
    assert [path.name for path in files] == ["granian_internals.py"]


def test_a_port_is_looked_at_where_the_workers_will_bind_it(monkeypatch):
    """Workers bind the IPv4 address of a name; elsewhere, the name may lead to an IPv6 address first."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        found = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with pytest.raises(CommandError, match=f"Cannot listen on localhost:{port}"):
            serve.refuse_taken_port("localhost", port)
