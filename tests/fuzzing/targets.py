"""What is fuzzed. A target takes bytes, and raises what is no documented refusal.

It returns -1 for an input that is not worth keeping.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import orjson
from django.core.management import call_command

from authz_project.keys import create_key
from localsql.bindings import bindings_from_text
from localsql.sync.config import ConfigContext, config_from_text
from policy import publishing, rules
from policy.endpoint import LONG_POLL, LongPoll
from policy.errors import AuthzError
from policy.language.format import formatted, says_the_same
from policy.language.source import PolicyRejected
from policy.models import default_environment

CORPUS = Path(__file__).with_name("corpus")
_AROUND = ConfigContext(connection="postgres://u:p@127.0.0.1:1/none")  # nothing connects while it is read

Target = Callable[[bytes], int | None]


def compile_policy(data: bytes) -> None:
    """Compile a policy and lay it out; only `PolicyRejected` may be raised."""
    text = data.decode(errors="replace")
    try:
        rules.compile_text(text)
    except PolicyRejected:
        return
    after = formatted(text)
    assert says_the_same(text, after), "the formatter changes what the policy says"


def read_bindings(data: bytes) -> None:
    """Read data bindings, and the same text as what synchronizes facts; only `AuthzError` may be raised."""
    text = data.decode(errors="replace")
    with suppress(AuthzError):
        bindings_from_text.__wrapped__(text)
    with suppress(AuthzError):
        config_from_text(text, _AROUND)


def front_door() -> Target:
    """Return a target that sends requests with a good key, each a line `POST /api/authorize` and a body below it.

    What follows `?` is the query string. The database must be migrated.
    """
    from authz_project.wsgi import ROUTES  # imports every page, which the other targets have no use for
    from tests.contract import OPERATIONS, SOURCE

    environment = default_environment()
    key = create_key(environment)[1]
    known = {operation.path for operation in OPERATIONS}
    publishing.publish(environment.pk, SOURCE, None)

    def request(data: bytes) -> int | None:
        head, _, body = data.partition(b"\n")
        method, _, address = head.decode(errors="replace").partition(" ")
        path, _, query = address.partition("?")
        if path not in known or method not in ("GET", "POST", "DELETE"):
            return -1
        environ = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": query.encode(errors="replace").decode("latin-1"),
            "CONTENT_LENGTH": str(len(body)),
            "CONTENT_TYPE": "application/json",
            "HTTP_AUTHORIZATION": f"Bearer {key}",
            "wsgi.input": io.BytesIO(body),
            LONG_POLL: LongPoll(lambda poll, environ: False),
        }
        status, _, content = ROUTES[path].answer(environ)
        assert status < 500, f"{method} {path}: {status}: {content.decode()}"
        if content and status >= 400:
            assert isinstance(orjson.loads(content), dict), f"{method} {path}: {status} without an object"
        if path == "/api/policy" and method == "POST" and status < 300:
            publishing.publish(environment.pk, SOURCE, None)  # for the inputs that follow
        return None

    return request


def begun(name: str, migrates: bool = True) -> Target:
    """Return a target by its name; that of requests needs a database, which it makes if `migrates`."""
    if name == "requests":
        if migrates:
            call_command("migrate", verbosity=0)
        return front_door()
    return {"policy": compile_policy, "bindings": read_bindings}[name]
