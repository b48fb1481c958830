"""Test an application against a service of its own, which is started for the tests and removed after them.

    with running_service() as service:
        environment = service.environment(policy)
        oso = Oso(environment.url, environment.key)

Uses the standard library only, and no Django, so that applications with Django settings of their own can use it.
"""

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

START_WITHIN = 60.0  # seconds
TIMEOUT = 30.0  # seconds of a request
ALLOW_ALL = "\nallow(_: Actor, _: String, _: Resource);\n"
_COMMAND = "from authz_project.command_line import main; main()"


class ServiceFailed(Exception):
    """The service did not start, or refused a request."""


@dataclass(frozen=True)
class TestedEnvironment:
    """An environment with its own policy, facts and key. Tests share the service, but not their environments."""

    __test__ = False  # pytest collects classes named Test…; this is not one

    url: str
    key: str

    def post(self, path: str, body: object) -> Any:
        """Send a request, such as `post("/batch", [{"inserts": […]}])`, and return the decoded response."""
        return _post(f"{self.url}/api{path}", body, self.key)

    def publish(self, policy: str, allow_all: bool = False) -> None:
        """Publish a policy. With `allow_all`, every declared actor may do anything on every declared resource."""
        if allow_all:  # tests in the policy that deny something fail then, and do not matter
            self.post("/policy?force=true", {"src": policy + ALLOW_ALL, "filename": ""})
        else:
            self.post("/policy", {"src": policy, "filename": ""})


@dataclass(frozen=True)
class RunningService:
    url: str

    def environment(self, policy: str = "", allow_all: bool = False) -> TestedEnvironment:
        """Create an empty environment, and publish the policy in it."""
        made = TestedEnvironment(self.url, _post(f"{self.url}/test_environment", {}, "")["token"])
        if policy:
            made.publish(policy, allow_all)
        return made


class RecordedCall(NamedTuple):
    method: str
    args: tuple[Any, ...]
    options: dict[str, Any]
    result: Any


class Recorder:
    """Wraps a client, passes calls on to it, and keeps them in `calls`."""

    def __init__(self, client: Any):
        self._client = client
        self.calls: list[RecordedCall] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            result = found(*args, **options)
            self.calls.append(RecordedCall(name, args, options, result))
            return result

        return call


@contextmanager
def running_service() -> Iterator[RunningService]:
    """Start a development server on a free port of this machine, in a temporary folder; stop it at the end."""
    with tempfile.TemporaryDirectory(prefix="authz-test-") as folder, (Path(folder) / "log").open("w+b") as log:
        port = _free_port()
        own = {
            "DATABASE_URL": f"sqlite:///{folder}/authz.sqlite3",
            "DJANGO_SETTINGS_MODULE": "authz_project.settings",
            "SECRET_KEY": secrets.token_urlsafe(50),
        }
        command = [sys.executable, "-c", _COMMAND, "serve", "--dev", "--port", str(port), "--workers", "1"]
        process = subprocess.Popen(command, cwd=folder, env=os.environ | own, stdout=log, stderr=log)  # noqa: S603
        try:
            url = f"http://127.0.0.1:{port}"
            if not _is_ready(url, process):
                log.seek(0)
                raise ServiceFailed(f"the service did not start:\n{log.read()[-5_000:].decode(errors='replace')}")
            yield RunningService(url)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def _is_ready(url: str, process: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + START_WITHIN
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(URLError, OSError), urlopen(f"{url}/readyz", timeout=TIMEOUT):  # noqa: S310
            return True
        time.sleep(0.05)
    return False


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _post(url: str, body: object, key: str) -> Any:
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    request = Request(url, json.dumps(body).encode(), headers, method="POST")  # noqa: S310
    try:
        with urlopen(request, timeout=TIMEOUT) as response:  # noqa: S310
            return json.load(response)
    except HTTPError as error:
        raise ServiceFailed(f"{url}: {error.code} {error.read().decode(errors='replace')}") from None
