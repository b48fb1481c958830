"""Requests under a foreign host name; and with `serve --dev`, those that a web page has a browser send."""

import pytest

from authz_project.middleware import CROSS_SITE, FOREIGN_HOST, NOT_LOOPBACK, _is_allowed, foreign_because
from tests.authz_project.test_two_ways import Ways, ways  # noqa: F401  a fixture

pytestmark = pytest.mark.one_database

PATHS = ("/api/authorize", "/api/facts", "/api/batch", "/api/", "/test_environment", "/access/v1/evaluation", "/admin/",
         "/docs/", "/static/admin/css/base.css", "/nope")  # fmt: skip
HEALTH = ("/healthcheck", "/api/healthcheck", "/readyz")
OWN = {"HTTP_HOST": "127.0.0.1:8080"}


@pytest.mark.parametrize("host", ["evil.example", "authz.example.org.evil.example", "x y", "a" * 5000, "", "[", "\xe9"])
def test_a_host_name_that_is_not_allowed_is_refused_by_both_ways(ways, settings, host):  # noqa: F811
    settings.ALLOWED_HOSTS = ["authz.example.org", ".example.net"]
    for path in PATHS:
        status, _, body = ways.send("POST", path, b"[]", HTTP_HOST=host)
        assert (status, FOREIGN_HOST.encode() in body) == ("400 Bad Request", True), path
    for path in HEALTH:
        assert ways.send("GET", path, HTTP_HOST=host)[0] == "200 OK"
    for allowed in ("authz.example.org", "AUTHZ.example.org:8080", "a.example.net", "example.net:1"):
        assert ways.send("GET", "/api/facts", HTTP_HOST=allowed)[0] == "200 OK"


def test_any_host_name_is_allowed_where_none_is_set(ways, settings):  # noqa: F811
    settings.ALLOWED_HOSTS = ["*"]
    for host in ("evil.example", "x y", ""):
        assert ways.send("GET", "/api/facts", HTTP_HOST=host)[0] == "200 OK"


@pytest.fixture
def dev(settings):
    settings.DEV_SERVER = True
    return settings


@pytest.mark.parametrize(
    "host",
    ["evil.example:8080", "127.0.0.1.evil.example", "0.0.0.0:8080", "localhost.evil.example", "192.0.2.1",
     "[2001:db8::1]:80", "", "x" * 500],
)  # fmt: skip
def test_a_development_server_has_loopback_names_alone(ways, dev, host):  # noqa: F811
    """However a name server leads a browser here, which sends the name that it knows (DNS rebinding)."""
    dev.ALLOWED_HOSTS = ["*", "evil.example"]
    for path in PATHS:
        status, _, body = ways.send("POST", path, b"[]", HTTP_HOST=host)
        assert (status, NOT_LOOPBACK.encode() in body) == ("400 Bad Request", True), path
    assert ways.send("GET", "/healthcheck", HTTP_HOST=host)[0] == "200 OK"


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "LOCALHOST:1", "127.0.0.1:8080", "127.9.8.7", "[::1]:80"]
)
def test_a_development_server_answers_to_loopback_names(ways, dev, host):  # noqa: F811
    dev.ALLOWED_HOSTS = ["authz.example.org"]
    assert ways.send("GET", "/api/facts", HTTP_HOST=host)[0] == "200 OK"
    assert ways.send("GET", "/docs/", HTTP_HOST=host)[0] == "200 OK"


FOREIGN = (
    {"HTTP_ORIGIN": "https://evil.example"},
    {"HTTP_ORIGIN": "http://127.0.0.1:8081"},
    {"HTTP_ORIGIN": "http://localhost:8080"},
    {"HTTP_ORIGIN": "http://127.0.0.1"},
    {"HTTP_ORIGIN": "null"},
    {"HTTP_ORIGIN": ""},
    {"HTTP_SEC_FETCH_SITE": "cross-site"},
    {"HTTP_SEC_FETCH_SITE": "same-site", "HTTP_SEC_FETCH_DEST": "iframe"},
    {"HTTP_SEC_FETCH_SITE": "cross-site", "HTTP_SEC_FETCH_DEST": "script"},
)


@pytest.mark.parametrize("headers", FOREIGN, ids=lambda headers: " ".join(headers.values()))
def test_a_development_server_refuses_what_pages_of_other_origins_send(ways, dev, headers):  # noqa: F811
    for path in PATHS:
        for method in ("GET", "POST", "DELETE", "OPTIONS"):
            status, _, body = ways.send(method, path, b"[]", **OWN, **headers)
            assert (status, CROSS_SITE.encode() in body) == ("403 Forbidden", True), (method, path)


OWN_PAGES = (
    {},
    {"HTTP_ORIGIN": "http://127.0.0.1:8080", "HTTP_SEC_FETCH_SITE": "same-origin"},
    {"HTTP_SEC_FETCH_SITE": "same-origin"},
    {"HTTP_SEC_FETCH_SITE": "none", "HTTP_SEC_FETCH_DEST": "document"},
    {"HTTP_SEC_FETCH_SITE": "cross-site", "HTTP_SEC_FETCH_DEST": "document"},
)


@pytest.mark.parametrize("headers", OWN_PAGES, ids=lambda headers: " ".join(headers.values()) or "none")
def test_programs_pages_of_its_own_and_links_are_answered(ways, dev, headers):  # noqa: F811
    for path in ("/api/facts", "/docs/"):
        assert ways.send("GET", path, **OWN, **headers)[0] == "200 OK"
    is_link = headers.get("HTTP_SEC_FETCH_SITE") == "cross-site"
    assert ways.send("POST", "/api/batch", b"[]", **OWN, **headers)[0] == ("403 Forbidden" if is_link else "200 OK")


def test_other_servers_look_at_no_origin(ways):  # noqa: F811
    """Nobody gets a browser to send a key; and the admin has Django's own check."""
    for headers in FOREIGN:
        assert ways.send("GET", "/api/facts", **OWN, **headers)[0] == "200 OK"


def test_what_is_remembered_of_names_is_bounded(settings):
    settings.ALLOWED_HOSTS = [".example"]
    for number in range(3_000):
        foreign_because({"HTTP_HOST": f"{number}.example", "PATH_INFO": "/api", "REQUEST_METHOD": "GET"})
    assert _is_allowed.cache_info().currsize <= 1_000
