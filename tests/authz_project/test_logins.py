"""Who tries passwords in the admin, and what the admin's pages may do."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db.models import F
from django.test import Client, RequestFactory

from authz_project.limits import FOR_ALL_NAMES, FOR_ONE_NAME, WINDOW, address_of
from authz_project.models import LoginAttempts

HERE, THERE = "192.0.2.1", "192.0.2.2"


@pytest.fixture
def ada(db, settings) -> User:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return User.objects.create_superuser("ada", password="right")


def log_in(name: str, password: str, address: str = HERE) -> str:
    """ "in", or what the page says."""
    answer = Client().post("/admin/login/", {"username": name, "password": password}, REMOTE_ADDR=address)
    if answer.status_code == 302:
        return "in"
    return " ".join(answer.context["form"].non_field_errors())


def test_after_some_failures_even_the_right_password_waits(ada):
    for _ in range(FOR_ONE_NAME):
        assert "correct username and password" in log_in("ada", "wrong")
    assert log_in("ada", "right") == "Too many failed logins. Try again in 15 minutes."
    assert log_in("ADA", "right").startswith("Too many")
    assert log_in("ada", "right", THERE) == "in"  # nobody is kept out by others
    LoginAttempts.objects.update(since=F("since") - WINDOW + timedelta(seconds=30))
    assert log_in("ada", "right") == "Too many failed logins. Try again in 1 minute."
    LoginAttempts.objects.update(since=F("since") - timedelta(seconds=31))
    assert log_in("ada", "right") == "in"


def test_an_address_cannot_try_name_after_name(ada):
    for number in range(FOR_ALL_NAMES):
        log_in(f"somebody{number}", "wrong")
    assert log_in("ada", "right").startswith("Too many")
    assert LoginAttempts.objects.count() == FOR_ALL_NAMES + 1


def test_those_who_log_in_are_not_counted(ada):
    for _ in range(FOR_ALL_NAMES + 5):
        assert log_in("ada", "right") == "in"
    assert log_in("ada", "wrong") and log_in("ada", "right") == "in"


def test_old_attempts_are_not_kept(ada):
    for number in range(5):
        log_in(f"somebody{number}", "wrong")
    LoginAttempts.objects.update(since=F("since") - WINDOW)
    log_in("ada", "wrong")
    assert LoginAttempts.objects.count() == 2


@pytest.mark.parametrize("public", ["https://Authz.example.org", "https://authz.example.org/authz", "forwarded"])
def test_forms_are_taken_from_the_public_url(ada, settings, public):
    settings.PUBLIC_URL = public
    browser = Client(enforce_csrf_checks=True, headers={"X-Forwarded-Proto": "https", "X-Forwarded-Host": "a.example"})
    token = browser.get("/admin/login/").context["csrf_token"]

    def sent(origin: str) -> int:
        form = {"csrfmiddlewaretoken": token, "username": "ada", "password": "wrong"}
        return browser.post("/admin/login/", form, headers={"Origin": origin}).status_code

    own = "https://a.example" if public == "forwarded" else "https://authz.example.org"
    assert (sent(own), sent("http://testserver"), sent(f"{own}.evil.example"), sent("null")) == (200, 200, 403, 403)
    assert sent("https://authz.example.org" if public == "forwarded" else "https://a.example") == 403


def test_where_a_request_comes_from(settings):
    def address(peer: str, **headers: str) -> str:
        return address_of(RequestFactory().get("/", REMOTE_ADDR=peer, headers=headers))

    forged = {"X-Forwarded-For": f"203.0.113.9, {THERE}"}
    assert address(HERE, **forged) == HERE
    settings.CLIENT_ADDRESS_HEADER = "X-Forwarded-For"
    assert address(HERE, **forged) == THERE
    assert address(HERE) == HERE
    for with_port in (f"{THERE}:50000", f"[::ffff:{THERE}]:50000"):
        assert address(HERE, **{"X-Forwarded-For": with_port}) == THERE
    assert address("2001:db8::1") == address("2001:db8::ffff") != address("2001:db8:0:1::1")
    assert address("::ffff:192.0.2.1") == HERE


def test_pages_of_the_admin_run_no_script_that_stands_in_them(ada):
    browser = Client()
    browser.force_login(ada)
    for path in ("/admin/", "/admin/login/", "/admin/nope/", "/admin/facts/signature/"):
        answer = browser.get(path)
        assert "script-src 'self';" in answer["Content-Security-Policy"]
        assert "unsafe" not in answer["Content-Security-Policy"]


def test_nobody_waits_for_a_clock_that_was_set_back(ada):
    for _ in range(FOR_ONE_NAME):
        log_in("ada", "wrong")
    LoginAttempts.objects.update(since=F("since") + timedelta(hours=5))
    assert log_in("ada", "right") == "in"
