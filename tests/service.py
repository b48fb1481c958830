"""The real thing in tests: `manage.py serve` as its own process, and a client for it."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import requests

from tests.postgresql import free_port

ROOT = Path(__file__).parent.parent
DEV_KEY = "e_0123456789_12345_osotesttoken01xiIn"
START_WITHIN = 180  # seconds
LOG_SHOWN = 10_000  # characters


@dataclass
class Client:
    """Sends as the holder of one key."""

    origin: str
    key: str

    def request(self, method: str, path: str, **options) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.key}", **options.pop("headers", {})}
        return requests.request(method, f"{self.origin}/api{path}", headers=headers, **{"timeout": 60, **options})

    def get(self, path: str, **options) -> requests.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, json: object = None, **options) -> requests.Response:
        return self.request("POST", path, json=json, **options)

    def delete(self, path: str, json: object = None, **options) -> requests.Response:
        return self.request("DELETE", path, json=json, **options)


@dataclass
class Service:
    """A running server. `fresh_client` has an environment of its own, so tests share the server."""

    origin: str
    process: subprocess.Popen
    log: Path

    def client(self, key: str = DEV_KEY) -> Client:
        return Client(self.origin, key)

    def fresh_client(self, copy: bool = False) -> Client:
        answer = requests.post(f"{self.origin}/test_environment", params={"copy": "true"} if copy else {}, timeout=60)
        return self.client(answer.json()["token"])

    def stop(self) -> int:
        """Ask it to stop, and wait; the exit status."""
        self.process.terminate()
        return self.process.wait(30)


def start_service(
    folder: Path, database_url: str, *options: str, root: Path = ROOT, python: str = sys.executable,
    program: Path | None = None, port: int = 0, **variables: str,
) -> Service:  # fmt: skip
    """`manage.py serve` of a checkout, or of an installed program, with the options, on the port or a free one."""
    port = port or free_port()
    log = folder / f"serve-{port}.log"
    command = [*([program] if program else [python, root / "manage.py"]), "serve", "--port", str(port), *options]
    environment = os.environ | {"DATABASE_URL": database_url, "PYTHONPATH": str(root)} | variables
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=file, stderr=file)
    service = Service(f"http://127.0.0.1:{port}", process, log)
    wait_for(service)
    return service


def wait_for(service: Service) -> None:
    deadline = time.monotonic() + START_WITHIN
    while time.monotonic() < deadline and service.process.poll() is None:
        try:
            requests.get(f"{service.origin}/healthcheck", timeout=5).raise_for_status()
            return
        except requests.RequestException:
            time.sleep(0.1)
    service.process.kill()
    raise RuntimeError(f"the server did not start:\n{service.log.read_text(errors='replace')[-LOG_SHOWN:]}")
