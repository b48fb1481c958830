"""Pages of another origin in a real browser, which try to read and to change what a server on this machine has."""

import http.server
import json
import threading
from contextlib import contextmanager

import pytest

from tests.browsing import PERSON, driver, manage, service_for_people
from tests.service import start_service

__all__ = ["driver"]  # a fixture
pytestmark = pytest.mark.long
FACT = {"predicate": "stolen", "args": [{"type": "User", "id": "eve"}]}

# Each attempt says what it could read; what it could change, the server is asked for afterwards.
ATTACK = """
const done = arguments[arguments.length - 1], [origin, key, fact] = arguments;
const read = {};
async function attempt(name, path, options = {}) {
  try {
    const answer = await fetch(origin + path, options);
    read[name] = answer.type === "opaque" ? "" : await answer.text();
  } catch (error) { read[name] = ""; }
}
function framed(path) {
  return new Promise(resolve => {
    const frame = document.createElement("iframe");
    frame.src = origin + path;
    frame.onload = () => {
      let text = "";
      try { text = frame.contentDocument.body.innerText; } catch (error) { text = ""; }
      resolve(text);
    };
    setTimeout(() => resolve(""), 5000);
    document.body.append(frame);
  });
}
function submitted(path, fields, enctype) {
  return new Promise(resolve => {
    const frame = document.createElement("iframe"), form = document.createElement("form");
    frame.name = "target" + Math.random();
    document.body.append(frame, form);
    Object.assign(form, {method: "POST", action: origin + path, target: frame.name, enctype});
    for (const [name, value] of Object.entries(fields)) {
      const field = document.createElement("input");
      Object.assign(field, {name, value});
      form.append(field);
    }
    frame.onload = () => { if (form.sent) resolve(); };
    setTimeout(resolve, 3000);
    form.sent = true;
    form.submit();
  });
}
(async () => {
  const bearer = {Authorization: "Bearer " + key}, body = JSON.stringify(fact);
  await attempt("facts", "/api/facts", {headers: bearer});
  await attempt("facts with cookies", "/api/facts", {credentials: "include"});
  await attempt("a test environment", "/test_environment?copy=true", {method: "POST"});
  await attempt("a test environment, unread", "/test_environment", {method: "POST", mode: "no-cors"});
  await attempt("a fact", "/api/facts", {method: "POST", headers: bearer, body});
  const plain = {"Content-Type": "text/plain"};
  await attempt("a fact as text", "/api/facts", {method: "POST", mode: "no-cors", body, headers: plain});
  await attempt("the admin", "/admin/", {credentials: "include"});
  await attempt("the admin, unread", "/admin/", {credentials: "include", mode: "no-cors"});
  await attempt("the documents", "/docs/");
  for (const path of ["/admin/", "/api/facts", "/docs/"]) read["frame of " + path] = await framed(path);
  await submitted("/api/facts", {[body.slice(0, -1) + ',"x":"']: '"}'}, "text/plain");
  await submitted("/test_environment", {copy: "true"}, "application/x-www-form-urlencoded");
  await submitted("/admin/facts/signature/add/", {fact: 'stolen(User:eve)'}, "application/x-www-form-urlencoded");
  const eve = {username: "eve", password1: "a long pass phrase", password2: "a long pass phrase"};
  await submitted("/admin/auth/user/add/", eve, "multipart/form-data");
  await submitted("/admin/logout/", {}, "application/x-www-form-urlencoded");
  const script = document.createElement("script");
  script.src = origin + "/api/facts";
  document.body.append(script);
  done(read);
})();
"""


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>attack</title><body>")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def evil_pages():
    """The origin of a site on another port of this machine: as close to the server as a foreign page can be."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}", f"localhost:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def log_in(driver, origin: str) -> None:
    driver.get(f"{origin}/admin/login/")
    driver.find_element("id", "id_username").send_keys(PERSON["DJANGO_SUPERUSER_USERNAME"])
    driver.find_element("id", "id_password").send_keys(PERSON["DJANGO_SUPERUSER_PASSWORD"])
    driver.find_element("css selector", "[type=submit]").click()
    assert is_logged_in(driver, origin)


def is_logged_in(driver, origin: str) -> bool:
    driver.get(f"{origin}/admin/")
    return not driver.find_elements("id", "id_password")


@pytest.mark.parametrize("mode", ["--dev", "production"])
def test_a_page_of_another_origin_reads_and_changes_nothing(driver, tmp_path, mode):
    url = f"sqlite:///{tmp_path / 'authz.sqlite3'}"
    if mode == "--dev":
        service = service_for_people(tmp_path, url)
        client = service.client()
    else:
        service = start_service(tmp_path, url, "--workers", "1")
        manage(tmp_path, url, "createsuperuser", "--noinput")
        key = next(word for word in service.log.read_text().split() if word.startswith("e_default_"))
        client = service.client(key)
    before = client.get("/facts").json(), environments(tmp_path, url)
    driver.set_script_timeout(60)
    driver.get("about:blank")
    driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    log_in(driver, service.origin)
    with evil_pages() as hosts:
        for host in hosts:
            driver.get(f"http://{host}/")
            read = driver.execute_async_script(ATTACK, service.origin, client.key, FACT)
            assert len(read) > 10 and not any(read.values()), json.dumps(read)
            assert (client.get("/facts").json(), environments(tmp_path, url)) == before
            assert client.get("/facts", params={"predicate": "stolen"}).json() == []
    assert is_logged_in(driver, service.origin)
    users = "from django.contrib.auth.models import User; print([*User.objects.all()])"
    assert "eve" not in shell(tmp_path, url, users)
    driver.get_log("browser")
    assert service.stop() == 0


def environments(folder, url: str) -> str:
    code = "from policy.models import Environment as E; print(sorted(E.objects.values_list('slug', flat=True)))"
    return shell(folder, url, code)


def shell(folder, url: str, code: str) -> str:
    return manage(folder, url, "shell", "-c", code)
