"""The files for deployment: what they set is a setting, what they run is there, and their programs take them."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import kubernetes_validate
import psycopg
import pytest
import requests
import yaml
from django.core.management import get_commands, load_command_class

from authz_project import __version__
from authz_project.server.process import FINISH_WITHIN
from tests import postgresql
from tests.postgresql import free_port
from tests.service import ROOT, start_service

DEPLOY = ROOT / "authz_project" / "deploy"
UNIT = (DEPLOY / "authz.service").read_text()
NGINX = (DEPLOY / "nginx.conf").read_text()
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
CHART = DEPLOY / "helm"
OLDEST_KUBERNETES = "1.28"


def helm(*words: object) -> str:
    if not shutil.which("helm"):
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no helm: .ci/run builds it")
    done = subprocess.run(["helm", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@cache
def manifests(*options: str, release: str = "authz") -> list[dict]:
    return list(yaml.safe_load_all(helm("template", release, CHART, *options)))


def of_kind(kind: str) -> dict:
    (found,) = [each for each in manifests() if each["kind"] == kind]
    return found


def containers() -> Iterator[dict]:
    for kind in ("Job", "Deployment"):
        yield from of_kind(kind)["spec"]["template"]["spec"]["containers"]


# ---- what they set and run is ours --------------------------------------------------------------------------------


def settings_of_documents() -> set[str]:
    text = (ROOT / "authz_project" / "docs" / "settings.md").read_text()
    return set(re.findall(r"^\| `([A-Z_]+)` \|", text, re.MULTILINE))


def test_what_they_set_are_settings():
    said = " ".join([UNIT, NGINX, (CHART / "values.yaml").read_text()])
    settings = set(COMPOSE["services"]["authz"]["environment"])
    settings |= {each["name"] for container in containers() for each in container.get("env", ())}
    settings |= set(re.findall(r"--from-literal=([A-Z_]+)", said)) | set(re.findall(r"\b([A-Z]+_[A-Z_]+)=", said))
    assert settings >= {"SECRET_KEY", "DATABASE_URL", "PUBLIC_URL"}
    assert settings <= settings_of_documents()


def commands_that_are_run() -> Iterator[list[str]]:
    yield COMPOSE["services"]["authz"]["command"]
    yield re.search(r"^ExecStart=\S+ (.*)$", UNIT, re.MULTILINE)[1].split()
    yield yaml.safe_load(re.search(r"^CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)[1])


@pytest.mark.parametrize("words", list(commands_that_are_run()), ids=" ".join)
def test_what_they_run_is_a_command_with_its_options(words):
    is_a_command(words)


def test_what_pods_run_is_a_command_with_its_options():
    for container in containers():
        is_a_command(container["args"])


def is_a_command(words: list[str]) -> None:
    command = load_command_class(get_commands()[words[0]], words[0])
    command.create_parser("authz", words[0]).parse_args(words[1:])


# ---- systemd ------------------------------------------------------------------------------------------------------


@pytest.fixture
def unit(tmp_path) -> Path:
    """With a program that is here."""
    path = tmp_path / "authz.service"
    path.write_text(UNIT.replace("/srv/authz/bin/authz", shutil.which("true")))
    return path


def test_systemd_takes_the_unit(unit):
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_unit_is_locked_in(unit):
    """On systemd's scale of 0 to 100: what it needs is the network, its own folder, and no more."""
    asked = ["systemd-analyze", "security", "--offline=true", "--threshold=15", "--no-pager", unit]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_unit_waits_until_requests_have_finished():
    assert int(re.search(r"TimeoutStopSec=(\d+)", UNIT)[1]) > FINISH_WITHIN


def test_the_unit_does_not_begin_with_an_empty_database_where_its_settings_are_lost():
    lines = UNIT.splitlines()
    ours = lines.index("Environment=DATABASE_URL=sqlite:////var/lib/authz/authz.sqlite3")
    assert lines.index("EnvironmentFile=/etc/authz.env") > ours


# ---- Kubernetes ---------------------------------------------------------------------------------------------------


OTHERS = ("--set=tag=1.2.3-rc.1,replicas=3,workers=8,secret=other,drainSeconds=30", "--set=settings.DECISION_LOG=-")


@pytest.mark.parametrize("version", [OLDEST_KUBERNETES, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("options", [(), OTHERS], ids=["defaults", "others"])
def test_kubernetes_takes_the_manifests(options, version):
    assert {each["kind"] for each in manifests(*options)} == {
        "Job", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy",
    }  # fmt: skip
    for found in manifests(*options):
        kubernetes_validate.validate(found, version, strict=True)


def test_helm_finds_nothing_wrong_with_the_chart():
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART)
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert described["version"] == described["appVersion"] == __version__


def test_values_are_where_they_belong_and_releases_have_names_of_their_own():
    found = {each["kind"]: each for each in manifests(*OTHERS, release="access")}
    assert {each["metadata"]["name"] for each in found.values()} == {"access", "access-migrate-1-2-3-rc-1"}
    spec = found["Deployment"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert spec["replicas"] == 3 and container["image"] == "authz:1.2.3-rc.1" and "8" in container["args"]
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > 30 + FINISH_WITHIN
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["ALLOWED_HOSTS"] == "access,authz.example.org" and "30s" in container["args"]
    (job,) = found["Job"]["spec"]["template"]["spec"]["containers"]
    for each in (container, job):
        assert {"name": "DECISION_LOG", "value": "-"} in each["env"]
        kept = [one["valueFrom"]["secretKeyRef"]["name"] for one in each["env"] if "valueFrom" in one]
        assert kept == ["other", "other"]


def test_pods_have_no_rights_and_a_read_only_file_system():
    for kind in ("Job", "Deployment"):
        spec = of_kind(kind)["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] and spec["automountServiceAccountToken"] is False
    for container in containers():
        secured = container["securityContext"]
        assert secured["readOnlyRootFilesystem"] and secured["capabilities"] == {"drop": ["ALL"]}
        assert secured["allowPrivilegeEscalation"] is False


def test_pods_are_found_by_what_selects_them():
    deployment = of_kind("Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert of_kind("Service")["spec"]["selector"] == labels
    assert of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert of_kind("Job")["spec"]["template"]["metadata"]["labels"] != labels  # or it would be sent requests


def test_pods_have_as_long_to_end_as_requests():
    (container,) = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    drained = int(container["args"][container["args"].index("--drain") + 1].removesuffix("s"))
    probe = container["readinessProbe"]
    assert drained > probe["periodSeconds"] * probe["failureThreshold"]
    assert of_kind("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > drained + FINISH_WITHIN


def test_no_pod_begins_without_its_database_and_secret():
    for container in containers():
        assert "envFrom" not in container
        kept = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in container["env"] if "valueFrom" in each}
        assert set(kept) == {"DATABASE_URL", "SECRET_KEY"}
        assert all(each["key"] == name and not each.get("optional") for name, each in kept.items())


def test_probes_ask_by_a_name_that_is_allowed():
    (container,) = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    allowed = next(each["value"] for each in container["env"] if each["name"] == "ALLOWED_HOSTS").split(",")
    assert "*" not in allowed and of_kind("Service")["metadata"]["name"] in allowed
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert [each["value"] for each in container[probe]["httpGet"]["httpHeaders"]] == [allowed[0]]


def test_only_pods_with_the_label_may_ask():
    policy = of_kind("NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"] == of_kind("Service")["spec"]["selector"]
    (rule,) = policy["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": {"authz-client": "yes"}}}]


# ---- compose ------------------------------------------------------------------------------------------------------


def test_what_services_refer_to_is_there():
    for service in COMPOSE["services"].values():
        assert {each["source"] for each in service.get("configs", ())} <= set(COMPOSE["configs"])
        named = {each.split(":")[0] for each in service.get("volumes", ())}
        assert named <= set(COMPOSE["volumes"])
        assert set(service.get("depends_on", ())) <= set(COMPOSE["services"])
    built = COMPOSE["services"]["authz"]["build"]
    assert (DEPLOY / built["context"]).resolve() == ROOT and (ROOT / built["dockerfile"]).exists()


def script(name: str) -> str:
    """As the container sees it: compose takes two signs for one."""
    return COMPOSE["configs"][name]["content"].replace("$$", "$")


@pytest.mark.long
def test_a_replica_follows_the_primary():
    """By the scripts of the two containers, with the programs that are here."""
    primary = postgresql.start()
    programs = Path(primary.command[0]).parent
    replica, port = primary.folder / "replica", free_port()
    variables = {"PATH": f"{programs}:{os.environ['PATH']}", "PGPORT": str(primary.port), "PGHOST": "127.0.0.1"}
    passwords = {"DATABASE_PASSWORD": "it's `$(false)`", "REPLICATION_PASSWORD": "another"}
    with psycopg.connect(primary.url(), autocommit=True) as connection:
        superuser = connection.info.user
        cluster = {"PGDATA": str(primary.folder / "cluster"), "POSTGRES_USER": superuser}
        assert run_as(primary, script("make_roles"), variables | passwords | cluster).wait(30) == 0
        roles = connection.execute(
            "SELECT rolname, rolsuper, rolreplication FROM pg_roles WHERE rolname LIKE 'authz%' ORDER BY 1"
        ).fetchall()
        assert roles == [("authz", False, False), ("authz_replication", False, True)]
        connection.execute("CREATE TABLE told (word text)")
        connection.execute("GRANT SELECT ON told TO authz")
        follow = script("follow").replace("--host=database", "--host=127.0.0.1")
        options = f"-p {port} -c unix_socket_directories={primary.folder} -c max_connections=200"  # as the primary's
        follow = follow.replace("exec postgres", f"exec postgres {options}")
        following = run_as(primary, follow, variables | {"PGDATA": str(replica), "PGPASSWORD": "another"})
        try:
            connection.execute("INSERT INTO told VALUES ('yes')")
            assert read_once_there(port) == ("yes", True)
        finally:
            following.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                following.wait(30)
            following.kill()
            primary.stop()


def run_as(server: postgresql.Server, text: str, variables: dict[str, str]) -> subprocess.Popen:
    with (server.folder / "script.log").open("ab") as log:
        return subprocess.Popen(
            ["bash", "-c", text], env=variables, cwd=server.folder, stdout=log, stderr=log, **server.identity
        )


def read_once_there(port: int) -> tuple[str, bool]:
    asked = f"postgres://authz@127.0.0.1:{port}/postgres"
    for _ in range(1800):
        with suppress(psycopg.Error), psycopg.connect(asked) as connection:
            found = connection.execute("SELECT word, pg_is_in_recovery() FROM told").fetchone()
            if found:
                return found
        time.sleep(0.1)
    raise AssertionError("the replica does not follow")


# ---- nginx --------------------------------------------------------------------------------------------------------


@pytest.fixture
def behind_nginx(tmp_path, migrated_urls):
    """The service, and the address at which nginx stands before it."""
    service = start_service(
        tmp_path, migrated_urls("sqlite", "behind"), "--workers", "1",
        ALLOWED_HOSTS="authz.example.org,127.0.0.1", PUBLIC_URL="forwarded",
        CLIENT_ADDRESS_HEADER="X-Forwarded-For",
    )  # fmt: skip
    port = free_port()
    key, certificate = tmp_path / "privkey.pem", tmp_path / "fullchain.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=authz.example.org"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    served = (
        NGINX.replace("/etc/ssl/authz/fullchain.pem", str(certificate))
        .replace("/etc/ssl/authz/privkey.pem", str(key))
        .replace("listen 443", f"listen 127.0.0.1:{port}")
        .replace("server 127.0.0.1:8080", f"server {service.origin.removeprefix('http://')}")
    )
    folders = "".join(f"{name}_temp_path {tmp_path / name};" for name in ("proxy", "fastcgi", "uwsgi", "scgi"))
    folders += f"client_body_temp_path {tmp_path / 'body'};"
    whole = tmp_path / "nginx.conf"
    head = f"daemon off; pid {tmp_path / 'pid'}; error_log {tmp_path / 'error.log'};"
    user = "user root;" if Path("/proc/self").stat().st_uid == 0 else ""
    whole.write_text(f"{user}{head} events {{}}\nhttp {{ access_log off; {folders}\n{served}\n}}")
    subprocess.run(["nginx", "-t", "-q", "-c", whole], check=True)
    process = subprocess.Popen(["nginx", "-c", whole])
    try:
        wait_for_port(port)
        yield service, f"https://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)
        service.stop()


def wait_for_port(port: int) -> None:
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("nginx does not listen")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
def test_nginx_stands_before_the_service(behind_nginx):
    service, origin = behind_nginx

    def asked(method: str, path: str, **options) -> requests.Response:
        headers = {"Host": "authz.example.org", **options.pop("headers", {})}
        return requests.request(method, origin + path, headers=headers, verify=False, timeout=60, **options)

    assert asked("GET", "/readyz").status_code == 404
    first_key = re.search(r"\be_\w+", service.log.read_text())
    assert first_key is not None
    key = {"Authorization": f"Bearer {first_key[0]}"}
    answered = asked("POST", "/api/policy", json={"src": "actor User {}"}, headers=key)
    assert answered.status_code == 200 and re.fullmatch("[0-9a-f-]{36}", answered.headers["X-Request-ID"])
    mine = asked("GET", "/api/policy", headers={**key, "X-Request-ID": "mine-1"})
    assert mine.headers["X-Request-ID"] == "mine-1"  # as AuthZEN wants it
    described = asked("GET", "/.well-known/authzen-configuration").json()
    assert described["access_evaluation_endpoint"].startswith("https://authz.example.org/")
    login = asked("GET", "/admin/login/")
    assert login.status_code == 200 and "Secure" in login.headers["Set-Cookie"]
    token = re.search(r'csrfmiddlewaretoken" value="(\w+)"', login.text)[1]
    for sender, status in (("https://authz.example.org", 200), ("https://evil.example", 403)):
        headers = {"Origin": sender, "Cookie": login.headers["Set-Cookie"].partition(";")[0]}
        form = {"csrfmiddlewaretoken": token, "username": "nobody", "password": "wrong"}
        assert asked("POST", "/admin/login/", data=form, headers=headers).status_code == status
    too_large = asked("POST", "/api/batch", data=b" " * (10 * 1024 * 1024 + 1), headers=key)
    assert too_large.status_code == 413 and "larger than" in too_large.json()["message"]
