"""RATE_LIMIT: how often a key may ask a process."""

from unittest import mock

import orjson
import oso_cloud
import pytest

from authz_project import limits, wsgi
from authz_project import settings as service_settings
from authz_project.keys import create_key
from authz_project.route import KeyAuthentication
from authz_project.settings import Rate
from facts.views import StatsEndpoint
from policy.active import Scope
from policy.endpoint import Request
from tests.authz_project.test_two_ways import Ways
from tests.conftest import Api, whole
from tests.service import start_service
from tests.test_revocation import REQUESTS


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock():
    limits._buckets.clear()
    with mock.patch.object(limits, "time", Clock()) as clock:
        yield clock
    limits._buckets.clear()


# ---- the bucket ------------------------------------------------------------------------------------------------------


def taken(rate: Rate, times: int, key: str = "k") -> int:
    """How many of so many requests are let through."""
    through = 0
    for _ in range(times):
        try:
            limits.take_token(key, rate)
            through += 1
        except limits.TooManyRequests:
            pass
    return through


@pytest.mark.parametrize("rate", [Rate(1000, 1), Rate(100, 60), Rate(1, 3600), Rate(7, 1)])
def test_all_of_a_period_at_once_and_then_as_many_as_come_back(clock, rate):
    assert taken(rate, 2 * rate.requests) == rate.requests
    clock.now += rate.seconds
    assert taken(rate, 2 * rate.requests) == rate.requests
    clock.now += 100 * rate.seconds
    assert taken(rate, 2 * rate.requests) == rate.requests
    in_small_steps = 0
    for _ in range(50):
        clock.now += rate.seconds / 25
        in_small_steps += taken(rate, rate.requests)
    assert in_small_steps in (2 * rate.requests, 2 * rate.requests - 1)


def test_each_key_has_its_own(clock):
    rate = Rate(5, 1)
    assert [taken(rate, 9, key) for key in "abc"] == [5, 5, 5]


@pytest.mark.parametrize(
    ("rate", "seconds"), [(Rate(1000, 1), 1), (Rate(100, 60), 1), (Rate(2, 60), 30), (Rate(1, 3600), 3600)]
)
def test_who_is_refused_is_told_when_the_next_token_comes(clock, rate, seconds):
    taken(rate, rate.requests)
    with pytest.raises(limits.TooManyRequests) as refused:
        limits.take_token("k", rate)
    assert refused.value.seconds == seconds
    clock.now += seconds
    assert taken(rate, 1) == 1


# ---- requests --------------------------------------------------------------------------------------------------------


def test_a_key_that_asks_too_often_is_told_when_to_come_back(api, settings, clock):
    settings.RATE_LIMIT = Rate(3, 60)
    assert [api.get("/stats").status_code for _ in range(3)] == [200, 200, 200]
    for method, path, body in (("GET", "/stats", None), ("POST", "/batch", []), ("POST", "/policy", {"src": ""})):
        answer = api.request(method, path, body)
        assert (answer.status_code, answer["Retry-After"], set(answer.json())) == (429, "20", {"message"})
        assert "exceeded 3 requests in 60 seconds (RATE_LIMIT" in answer.json()["message"]
    other = Api(api.environment, create_key(api.environment)[1])
    assert other.get("/stats").status_code == 200
    clock.now += 20
    assert [api.get("/stats").status_code for _ in range(2)] == [200, 429]


def test_who_has_no_key_is_refused_for_that_and_takes_no_place(api, settings, clock):
    settings.RATE_LIMIT = Rate(1, 60)
    nobody = Api(api.environment, "e_default_no_key")
    assert [nobody.get("/stats").status_code for _ in range(3)] == [401, 401, 401]
    assert not limits._buckets
    assert [api.get("/healthcheck", Authorization="").status_code for _ in range(3)] == [200, 200, 200]


def test_a_key_that_lacks_the_scope_is_limited_as_well(api, settings, clock):
    settings.RATE_LIMIT = Rate(2, 60)
    narrow = Api(api.environment, create_key(api.environment, scopes=[Scope.FACTS])[1])
    assert [narrow.get("/stats").status_code for _ in range(4)] == [403, 403, 429, 429]


def test_a_request_that_is_answered_again_counts_once(api, settings, clock):
    """Its cached answer was outdated, or its environment has moved: a server handles its environ again."""
    settings.RATE_LIMIT = Rate(2, 60)
    authentication = KeyAuthentication(StatsEndpoint())
    environ = {"HTTP_AUTHORIZATION": f"Bearer {api.key}"}
    for _ in range(3):
        authentication.authenticate(Request("GET", environ, bytes, "an id", 0.0))
    assert [api.get("/stats").status_code for _ in range(2)] == [200, 429]


def test_without_a_limit_nothing_is_counted(api, clock):
    assert [api.get("/stats").status_code for _ in range(20)] == [200] * 20
    assert not limits._buckets


def test_both_ways_refuse_alike(db, settings, clock):
    ways = Ways()
    assert wsgi.ROUTES
    settings.RATE_LIMIT = Rate(4, 60)
    statuses = [ways.send("GET", "/api/stats")[0][:3] for _ in range(6)]
    assert statuses == ["200"] * 4 + ["429"] * 2
    for method, path, body in REQUESTS:
        status, _, told = ways.send(method, whole(path), b"" if body is None else orjson.dumps(body))
        assert (status, set(orjson.loads(told))) == ("429 Too Many Requests", {"message"}), path


# ---- the setting -----------------------------------------------------------------------------------------------------


def test_the_setting_says_what_it_may_be(monkeypatch):
    for text, rate in {
        "": None, "0": None, " 1000/s ": Rate(1000, 1), "100/m": Rate(100, 60), "5000/h": Rate(5000, 3600),
    }.items():  # fmt: skip
        monkeypatch.setenv("RATE_LIMIT", text)
        assert service_settings.rate_limit() == rate
    for text in ("100", "/s", "0/s", "-1/s", "1.5/s", "9/day", "10 / s", "1e3/s", "9999999999/s", "\u0661/s", "fast"):
        monkeypatch.setenv("RATE_LIMIT", text)
        with pytest.raises(service_settings.ImproperlyConfigured, match="RATE_LIMIT must be a rate such as"):
            service_settings.rate_limit()


# ---- a server and the published client -------------------------------------------------------------------------------


@pytest.mark.long
def test_the_published_client_asks_once_more_and_then_says_when(migrated_urls, tmp_path):
    service = start_service(tmp_path, migrated_urls("sqlite", "limited"), "--dev", "--workers", "1", RATE_LIMIT="3/h")
    try:
        oso = oso_cloud.Oso(url=service.origin, api_key=service.fresh_client().key)
        statuses: list[int] = []
        oso.api.session.hooks["response"] = lambda response, **_: statuses.append(response.status_code)
        with pytest.raises(oso_cloud.OsoException) as refused:
            for _ in range(4):
                assert oso.list(oso_cloud.Value("User", "ann"), "read", "Repo") == []
        assert statuses[:3] == [200] * 3 and set(statuses[3:]) == {429} and len(statuses) > 4
        assert refused.value.status_code == 429
        assert 0 < refused.value.retry_after <= 1200
    finally:
        service.stop()
