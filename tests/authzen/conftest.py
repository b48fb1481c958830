"""Requests of AuthZEN, to the application as servers run it."""

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest

from authz_project.wsgi import application
from facts import store
from facts.store import Inserts
from facts.wire import fact_from_text
from policy import publishing

FIXTURE = (Path(__file__).parent / "certification.polar").read_text()
STORED = [
    "has_role(user:alice, owner, record:record-1)",
    "has_role(user:alice, owner, record:record-2)",
    "has_role(user:bob, reader, record:record-1)",
    'role(user:bob, "admin")',
    'status(record:record-1, "active")',
    'status(record:record-2, "archived")',
]


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: dict


@dataclass
class Pdp:
    """What is asked, with the key of one environment."""

    key: str
    environment_id: int
    headers: dict[str, str] = field(default_factory=dict)

    def post(self, path: str, body: object, **headers: str) -> Answer:
        text = body if isinstance(body, bytes) else orjson.dumps(body)
        return self.request("POST", f"/access/v1/{path}", text, **{"CONTENT_TYPE": "application/json", **headers})

    def request(self, method: str, path: str, text: bytes = b"", **headers: str) -> Answer:
        told: dict = {}

        def start(status, sent):
            told.update(status=int(status[:3]), headers=dict(sent))

        environ = {
            "REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": "", "SERVER_NAME": "testserver",
            "SERVER_PORT": "80", "HTTP_HOST": "testserver", "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(text),
            "CONTENT_LENGTH": str(len(text)), "HTTP_AUTHORIZATION": f"Bearer {self.key}", **headers,
        }  # fmt: skip
        content = b"".join(application(environ, start))
        return Answer(told["status"], told["headers"], orjson.loads(content))


@pytest.fixture
def new_pdp(new_api) -> Callable[..., Pdp]:
    """Makes environments with a policy and facts."""

    def make(policy: str, facts: list[str], slug: str = "default") -> Pdp:
        api = new_api(slug)
        publishing.publish(api.environment.pk, policy, None)
        store.apply(api.environment.pk, [Inserts([fact_from_text(each) for each in facts], None)])
        return Pdp(api.key, api.environment.pk)

    return make


@pytest.fixture
def pdp(new_pdp) -> Pdp:
    """The fixture of the certification scenario."""
    return new_pdp(FIXTURE, STORED)
