"""Sign-in to the admin by OpenID Connect, with a provider that runs here."""

import secrets
import time
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import rsa
from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import include, path
from oidc_provider_mock import run_server_in_thread

from authz_project import sso, urls
from authz_project.limits import FOR_ALL_NAMES
from authz_project.roles import create_groups
from authz_project.settings import roles
from tests.service import start_service

pytestmark = pytest.mark.one_database

urlpatterns = [path("admin/oidc/", include("authz_project.sso")), *urls.urlpatterns]
endpoints = urls.endpoints
handler400, handler403, handler404, handler500 = urls.handler400, urls.handler403, urls.handler404, urls.handler500

START = "/admin/oidc/authenticate/?next=/admin/facts/signature/"
FAILED = "Sign-in failed, or no role is given to your groups. Ask an administrator."
CLIENT = "authz"


@pytest.fixture(scope="module")
def issuer():
    with run_server_in_thread() as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture
def provider(issuer, db, settings):
    """Return a function that sets the groups of a user at the provider."""
    settings.ROOT_URLCONF = __name__
    settings.AUTHENTICATION_BACKENDS = [*settings.AUTHENTICATION_BACKENDS, "authz_project.sso.ProviderBackend"]
    settings.OIDC_ISSUER, settings.OIDC_RP_CLIENT_ID, settings.OIDC_RP_CLIENT_SECRET = issuer, CLIENT, "secret"
    settings.OIDC_ROLES = [("team", "publisher"), ("staff", "viewer"), ("ops", "key keeper"), ("x", "nothing")]
    create_groups("default", apps)
    return lambda sub, groups, **claims: told(issuer, sub, groups, **claims)


def told(issuer: str, sub: str, groups: object, **claims: object) -> None:
    about = {"preferred_username": sub, "email": f"{sub}@example.org", "groups": groups} | claims
    requests.put(f"{issuer}/users/{sub}", json=about, timeout=10).raise_for_status()


def returned(browser: Client, sub: str) -> str:
    """Go to the provider and sign in there; return the URL that it leads back to."""
    asked = browser.get(START)["Location"]
    back = requests.post(asked, data={"sub": sub}, allow_redirects=False, timeout=10)
    return back.headers["Location"]


def signed_in(sub: str) -> tuple[Client, object]:
    browser = Client()
    return browser, browser.get(returned(browser, sub))


def assert_refused(browser: Client, answer) -> None:
    assert (answer.status_code, answer["Location"]) == (302, "/admin/login/")
    assert browser.get("/admin/login/").content.decode().count(FAILED) == 1
    assert browser.get("/admin/").status_code == 302


def names(user: User) -> set[str]:
    return {group.name for group in user.groups.all()}


def test_groups_at_the_provider_are_roles_here(provider):
    provider("ann", ["team", "ops", "unknown", 7])
    browser, answer = signed_in("ann")
    assert (answer.status_code, answer["Location"]) == (302, "/admin/facts/signature/")
    ann = User.objects.get(username="ann")
    assert names(ann) == {"publisher", "key keeper"}
    assert (ann.is_staff, ann.is_superuser, ann.email, ann.has_usable_password()) == (
        True, False, "ann@example.org", False,
    )  # fmt: skip
    assert browser.get("/admin/authz_project/apikey/").status_code == 200
    assert sso.SESSION_SECONDS - 60 < browser.session.get_expiry_age() <= sso.SESSION_SECONDS


def test_a_session_ends_when_its_time_is_over_whatever_is_done_in_it(provider):
    provider("ann", ["staff"])
    browser, _ = signed_in("ann")
    end = Session.objects.get().expire_date
    browser.get(START)
    session = browser.session
    session["space"] = "another"
    session.save()
    assert abs(Session.objects.get().expire_date - end) < timedelta(seconds=1)
    assert browser.get("/admin/").status_code == 200
    browser.get(returned(browser, "ann"))
    assert Session.objects.latest("expire_date").expire_date > end


def test_a_password_after_a_sign_in_that_was_given_up_has_the_usual_session(provider):
    User.objects.create_superuser("root", password="right")
    browser = Client()
    browser.get(START)
    assert browser.session.get_expiry_age() == 900
    browser.post("/admin/login/", {"username": "root", "password": "right"})
    assert browser.session.get_expiry_age() == settings.SESSION_COOKIE_AGE


def test_leaving_a_group_takes_its_role_from_all_sessions_at_the_next_sign_in(provider):
    provider("ann", ["team", "staff"])
    earlier, _ = signed_in("ann")
    provider("ann", ["staff"])
    signed_in("ann")
    assert names(User.objects.get(username="ann")) == {"viewer"}
    assert earlier.get("/admin/policy/policyversion/add/").status_code == 403
    provider("ann", [])
    assert_refused(*signed_in("ann"))
    assert earlier.get("/admin/").status_code == 302
    assert not names(User.objects.get(username="ann"))


@pytest.mark.parametrize("groups", [[], ["unknown"], ["x"], "team", {"team": 1}, None])
def test_without_a_role_there_is_no_account(provider, groups):
    provider("eve", groups)
    assert_refused(*signed_in("eve"))
    assert not User.objects.exists()


def test_roles_of_applications_count_as_groups_do(provider):
    provider("ann", None, roles=["staff"])
    signed_in("ann")
    assert names(User.objects.get()) == {"viewer"}


def test_an_account_is_never_found_by_a_name_or_address(provider):
    root = User.objects.create_superuser("root", "root@example.org", "right")
    provider("mallory", ["staff"], preferred_username="root", email="root@example.org")
    assert_refused(*signed_in("mallory"))
    root.refresh_from_db()
    assert root.is_superuser and root.check_password("right") and User.objects.count() == 1
    provider("mallory", ["staff"], preferred_username="a\nb", email="mallory@example.org")
    signed_in("mallory")
    assert User.objects.latest("pk").username == "mallory@example.org"


def test_whoever_is_disabled_here_stays_out(provider):
    provider("ann", ["staff"])
    signed_in("ann")
    User.objects.update(is_active=False)
    assert_refused(*signed_in("ann"))


def test_a_local_superuser_signs_in_with_a_password_even_if_the_provider_is_down(provider, settings):
    settings.OIDC_ISSUER = "http://localhost:1"
    User.objects.create_superuser("root", password="right")
    browser = Client()
    assert '/admin/oidc/authenticate/?next=/admin/"' in browser.get("/admin/login/?next=/admin/").content.decode()
    answer = browser.post("/admin/login/?code=1&state=2", {"username": "root", "password": "right"})
    assert answer.status_code == 302 and browser.get("/admin/").status_code == 200
    assert_refused(other := Client(), other.get(START))


@pytest.mark.parametrize("place", ["https://evil.example/", "//evil.example"])
def test_no_sign_in_leads_elsewhere(provider, place):
    provider("ann", ["staff"])
    browser = Client()
    asked = browser.get(f"/admin/oidc/authenticate/?next={place}")["Location"]
    back = requests.post(asked, data={"sub": "ann"}, allow_redirects=False, timeout=10).headers["Location"]
    assert browser.get(back)["Location"] == "/admin/"


def test_the_request_to_the_provider_has_state_nonce_and_challenge(provider, settings):
    settings.PUBLIC_URL = "https://authz.example.org"
    sent = parse_qs(urlsplit(Client().get(START)["Location"]).query)
    assert sent["redirect_uri"] == ["https://authz.example.org/admin/oidc/callback/"]
    assert (sent["response_type"], sent["code_challenge_method"]) == (["code"], ["S256"])
    assert all(len(sent[name][0]) >= 32 for name in ("state", "nonce", "code_challenge"))


def test_sign_ins_that_come_to_nothing_are_limited_per_address(provider):
    provider("ann", ["staff"])
    for _ in range(FOR_ALL_NAMES + 2):
        assert signed_in("ann")[1]["Location"] == "/admin/facts/signature/"
    for _ in range(FOR_ALL_NAMES):
        assert "oauth2/authorize" in Client().get(START)["Location"]
    sessions = Session.objects.count()
    browser = Client()
    assert browser.get(START)["Location"] == "/admin/login/" and Session.objects.count() == sessions
    assert "Too many failed logins" in browser.get("/admin/login/").content.decode()
    assert "oauth2/authorize" in Client().get(START, REMOTE_ADDR="192.0.2.7")["Location"]


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_a_state_of_another_browser_or_one_that_was_used_is_refused(provider):
    provider("ann", ["staff"])
    browser = Client()
    back = returned(browser, "ann")
    other = Client()
    other.get(START)
    assert_refused(other, other.get(back))
    assert browser.get(back)["Location"] == "/admin/facts/signature/"
    again = browser.get(back)
    assert again["Location"] == "/admin/login/"


@pytest.mark.parametrize("answer", ["error=access_denied&state=x", "code=wrong&state=STATE", "code=a", ""])
def test_what_is_no_code_is_refused(provider, answer):
    browser = Client()
    state = parse_qs(urlsplit(browser.get(START)["Location"]).query)["state"][0]
    assert_refused(browser, browser.get(f"/admin/oidc/callback/?{answer.replace('STATE', state)}"))


OURS, FOREIGN = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
GOOD = {"aud": CLIENT, "sub": "ann", "groups": ["staff"], "preferred_username": "ann"}
WRONG = {
    "nonce": {"nonce": "another"},
    "no nonce": {"nonce": None},
    "issuer": {"iss": "https://other.example"},
    "audience": {"aud": "another"},
    "another client": {"aud": [CLIENT, "another"], "azp": "another"},
    "expired": {"exp": 1_000_000_000},
    "no expiry": {"exp": None},
    "no subject": {"sub": None},
    "another subject": {"sub": "ben"},
}


def answer_with(monkeypatch, issuer: str, key, algorithm: str = "RS256", **changed: object) -> Client:
    """Return a browser that the provider leads back to us, with an ID token signed by the key."""
    browser = Client()
    back = returned(browser, "ann")
    nonce = next(iter(browser.session["oidc_states"].values()))["nonce"]
    now = int(time.time())
    claims = GOOD | {"iss": issuer, "nonce": nonce, "iat": now, "exp": now + 60} | changed
    kept = {name: value for name, value in claims.items() if value is not None}
    token = jwt.encode(kept, key, algorithm, headers={"kid": "1"})
    monkeypatch.setattr(sso.ProviderBackend, "get_token", lambda *_: {"id_token": token, "access_token": "a"})
    monkeypatch.setattr(sso.ProviderBackend, "retrieve_matching_jwk", lambda *_: OURS.public_key())
    monkeypatch.setattr(sso.ProviderBackend, "get_userinfo", lambda *_: {"sub": "ann"})
    browser.answer = browser.get(back)
    return browser


def test_the_right_token_is_accepted(provider, issuer, monkeypatch):
    browser = answer_with(monkeypatch, issuer, OURS)
    assert browser.answer["Location"] == "/admin/facts/signature/"
    assert names(User.objects.get(username="ann")) == {"viewer"}


@pytest.mark.parametrize("changed", WRONG.values(), ids=WRONG)
def test_a_token_with_a_wrong_claim_is_refused(provider, issuer, monkeypatch, changed):
    browser = answer_with(monkeypatch, issuer, OURS, **changed)
    assert_refused(browser, browser.answer)
    assert not User.objects.exists()


@pytest.mark.parametrize("key, algorithm", [(FOREIGN, "RS256"), (None, "none"), ("secret" * 8, "HS256")])
def test_a_token_that_the_provider_did_not_sign_is_refused(provider, issuer, monkeypatch, key, algorithm):
    browser = answer_with(monkeypatch, issuer, key, algorithm)
    assert_refused(browser, browser.answer)
    assert not User.objects.exists()


def test_nothing_of_a_failure_stands_in_the_log(provider, issuer, monkeypatch, caplog):
    answer_with(monkeypatch, issuer, FOREIGN)
    assert [record.getMessage() for record in caplog.records if record.name == "authz.sso"] == [
        "a sign-in failed: InvalidSignatureError"
    ]


# ---- the running server ----------------------------------------------------------------------------------------------


def test_a_server_with_the_settings_signs_in(issuer, migrated_urls, tmp_path):
    told(issuer, "zoe", ["keys"])
    asked = {"OIDC_ISSUER": issuer, "OIDC_RP_CLIENT_ID": CLIENT, "OIDC_RP_CLIENT_SECRET": "s"}
    asked["OIDC_ROLES"] = "keys=key keeper"
    server = start_service(
        tmp_path, migrated_urls("sqlite", "sso"), "--workers", "1", SECRET_KEY=secrets.token_hex(), **asked
    )
    try:
        browser = requests.Session()
        login = browser.get(f"{server.origin}/admin/login/", timeout=30)
        assert "Sign in with single sign-on" in login.text
        asked = browser.get(f"{server.origin}/admin/oidc/authenticate/", allow_redirects=False, timeout=30)
        there = requests.post(asked.headers["Location"], data={"sub": "zoe"}, allow_redirects=False, timeout=30)
        home = browser.get(there.headers["Location"], timeout=30)
        assert (home.status_code, home.url) == (200, f"{server.origin}/admin/")
        assert browser.get(f"{server.origin}/admin/authz_project/apikey/", timeout=30).status_code == 200
        assert browser.get(f"{server.origin}/admin/policy/policyversion/", timeout=30).status_code == 403
    finally:
        server.stop()


def test_the_setting_of_roles_is_pairs():
    assert roles(["a=b=viewer", " x = key keeper "]) == [("a=b", "viewer"), ("x", "key keeper")]
    with pytest.raises(Exception, match="OIDC_ROLES must be pairs such as"):
        roles(["viewer"])
