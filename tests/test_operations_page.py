"""What the documents give to other programs (a proxy, systemd, logrotate, readers of the decision log) is right."""

import configparser
import json
import re
import tomllib

from django.conf import settings

from authz_project.server.process import FINISH_WITHIN
from checks.decisions.lines import Line, line_of_text
from tests.samples import ADDRESS, DOCUMENTS, page
from tests.test_samples import options_of

OF_NGINX = {"listen", "server_name", "client_max_body_size", "proxy_pass", "proxy_set_header"}
OF_SYSTEMD = {"User", "WorkingDirectory", "EnvironmentFile", "ExecStart", "Restart", "TimeoutStopSec"}
ALL = "\n".join(document.text for document in DOCUMENTS)


def the_line() -> str:
    """Of the decision log."""
    return page("time").the_only("jsonl").replace("\n", "")


def test_the_proxy_lets_through_what_the_service_reads():
    text = page("operations").the_only("nginx")
    directives = re.findall(r"^ +(\w+) ([^;{}]+);$", text, re.MULTILINE)
    blocks = re.findall(r"^ *(server|location /) \{$", text, re.MULTILINE)
    assert len(directives) + 2 * len(blocks) == len(text.splitlines())
    named = dict(directives)
    assert set(named) == OF_NGINX
    assert named["proxy_pass"] == ADDRESS
    assert int(named["client_max_body_size"].removesuffix("m")) * 2**20 > settings.MAX_BODY_BYTES
    headers = dict(value.split() for name, value in directives if name == "proxy_set_header")
    address = re.search(r"`CLIENT_ADDRESS_HEADER=([\w-]+)`", ALL)[1]
    assert headers == {"Host": "$host", "X-Request-ID": "$request_id", address: "$remote_addr"}
    assert f"`ALLOWED_HOSTS={named['server_name']}`" in ALL


def test_the_line_of_the_decision_log_is_one_and_can_be_read():
    line = line_of_text(the_line(), 1)
    assert isinstance(line, Line) and line.endpoint == "authorize"
    assert set(json.loads(the_line())) == set(Line.__slots__) - {
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
    colours = json.loads(f"{{{editors.the_only('jsonc')}}}")["contributes"]
    assert colours["grammars"][0]["language"] == colours["languages"][0]["id"] == "polar"


def test_the_unit_starts_and_stops_the_service():
    parser = configparser.ConfigParser()
    parser.optionxform = str
    parser.read_string(page("operations").the_only("ini"))
    unit = parser["Service"]
    assert set(unit) == OF_SYSTEMD
    program, *command = unit["ExecStart"].split()
    assert program == f"{unit['WorkingDirectory']}/.venv/bin/authz"
    assert command[:1] == ["serve"]
    assert options_of("serve", command[1:])
    assert int(unit["TimeoutStopSec"]) > FINISH_WITHIN
