"""What the documents give to other programs (a proxy, logrotate, readers of the decision log) is right."""

import json
import re
import tomllib

from django.conf import settings

from checks.decisions.log import LogLine, line_of_text
from tests.samples import ADDRESS, DOCUMENTS, page
from tests.service import ROOT
from tests.test_samples import options_of

ALL = "\n".join(document.text for document in DOCUMENTS)


def the_line() -> str:
    """Of the decision log."""
    return page("time").the_only("jsonl").replace("\n", "")


def test_the_proxy_lets_through_what_the_service_reads():
    text = page("operations").the_only("nginx")
    directives = re.findall(r"^ +(\w+) ([^;{}]+);$", text, re.MULTILINE)
    assert ("proxy_pass", ADDRESS) in directives
    headers = dict(value.split() for name, value in directives if name == "proxy_set_header")
    address = re.search(r"`CLIENT_ADDRESS_HEADER=([\w-]+)`", ALL)[1]
    assert headers == {"Host": "$host", address: "$remote_addr"}
    whole = (ROOT / "authz_project" / "deploy" / "nginx.conf").read_text()
    assert all(f"proxy_set_header {name} {value};" in whole for name, value in headers.items())
    assert "X-Request-ID $" not in whole + text  # the caller's own goes through, and comes back
    assert int(re.search(r"client_max_body_size (\d+)m;", whole)[1]) * 2**20 > settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    assert f"`ALLOWED_HOSTS={re.search(r'server_name (.*);', whole)[1]}`" in ALL


def test_the_line_of_the_decision_log_is_one_and_can_be_read():
    line = line_of_text(the_line(), 1)
    assert isinstance(line, LogLine) and line.endpoint == "authorize"
    assert set(json.loads(the_line())) == set(LogLine.__slots__) - {
        "number", "is_published_client", "context_facts_left_out",
    }  # fmt: skip


def test_the_log_that_is_turned_is_the_decision_log():
    path = page("time").the_only("logrotate").partition(" ")[0]
    assert f"`DECISION_LOG={path}`" in ALL


def test_editors_start_the_language_server():
    editors = page("editors")
    helix = tomllib.loads(editors.the_only("toml"))["language-server"]["authz"]
    (started,) = re.findall(r"cmd = \{([^}]*)\}", editors.the_only("lua"))
    assert [helix["command"], *helix["args"]] == re.findall(r'"(\w+)"', started) == ["authz", "language_server"]
    assert options_of("language_server", [])
    package = ROOT / "authz_project" / "deploy" / "vscode" / "package.json"
    colours = json.loads(package.read_text())["contributes"]
    assert colours["grammars"][0]["language"] == colours["languages"][0]["id"] == "polar"
