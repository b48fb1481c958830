"""The container's steps, run in a bare Debian, and what comes of them, served from a file system that is read-only.

There may be no engine for containers where tests run. So each step of the Containerfile is taken here as an engine
takes it, with chroot in the place of a container.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests

from tests.postgresql import free_port
from tests.service import ROOT, Service, wait_for

CONTAINERFILE = ROOT / "authz_project" / "deploy" / "Containerfile"
BASE = "debian:bookworm-slim"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
OF_PIP = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT")  # where packages are
pytestmark = pytest.mark.long


@dataclass
class Stage:
    """A tree of files, and how programs run in it."""

    tree: Path
    variables: dict[str, str] = field(default_factory=lambda: {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"})
    folder: str = "/"
    user: str = "0"
    said: dict[str, str] = field(default_factory=dict)  # what it would be started with


def instructions() -> Iterator[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        yield word, rest.strip()


def run(*words: object) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Iterator[Stage]:
    """The last stage, all steps done."""
    folder = tmp_path_factory.mktemp("container")
    folder.chmod(0o755)
    options = ["--mode=root", "--variant=minbase", '--aptopt=Acquire::Languages "none"', "--dpkgopt=force-unsafe-io"]
    run("mmdebstrap", "--quiet", *options, BASE.split(":")[1].removesuffix("-slim"), folder / "base")
    stages: dict[str, Stage] = {}
    for word, rest in instructions():
        if word == "FROM":
            image, _, name = rest.partition(" AS ")
            assert image == BASE
            stage = stages[name] = Stage(folder / (name or "last"))
            shutil.copytree(folder / "base", stage.tree, symlinks=True, ignore=shutil.ignore_patterns("dev"))
            prepare(stage.tree)
        else:
            take(stage, word, rest, stages)
    yield stages[""]
    shutil.rmtree(folder, ignore_errors=True)


def prepare(tree: Path) -> None:
    """What an engine brings: devices, names of machines; and the authorities that are trusted here."""
    (tree / "dev").mkdir()
    for name, number in (("null", 3), ("zero", 5), ("random", 8), ("urandom", 9)):
        run("mknod", "-m", "666", tree / "dev" / name, "c", 1, number)
    (tree / "dev" / "shm").mkdir(mode=0o1777)
    for name in ("resolv.conf", "hosts"):
        shutil.copy(f"/etc/{name}", tree / "etc" / name)


def take(stage: Stage, word: str, rest: str, stages: dict[str, Stage]) -> None:
    match word:
        case "RUN":
            within(stage, rest)
        case "COPY":
            copy(stage, rest, stages)
        case "ENV":
            name, _, value = rest.partition("=")
            stage.variables[name] = value
        case "WORKDIR":
            stage.folder = rest
        case "USER":
            stage.user = rest
        case _:
            assert word in ("VOLUME", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT", "CMD"), word
            stage.said[word] = rest


def within(stage: Stage, text: str) -> None:
    if AUTHORITIES.exists():
        shutil.copy(AUTHORITIES, stage.tree / "authorities")
    told = {name: os.environ[name] for name in OF_PIP if name in os.environ} | {"PIP_CERT": "/authorities"}
    variables = [f"{name}={value}" for name, value in (stage.variables | told).items()]
    run("chroot", stage.tree, "env", "-i", "DEBIAN_FRONTEND=noninteractive", *variables, "sh", "-c", text)
    (stage.tree / "authorities").unlink(missing_ok=True)


def copy(stage: Stage, rest: str, stages: dict[str, Stage]) -> None:
    found = re.fullmatch(r"(?:--from=(\S+) )?(\S+) (\S+)", rest)
    name, source, target = found.groups()
    if name:
        shutil.copytree(stages[name].tree / source[1:], stage.tree / target[1:], symlinks=True)
        return
    assert source == "."
    for path in subprocess.check_output(["git", "ls-files", *let_through()], cwd=ROOT, text=True).splitlines():
        if (ROOT / path).exists():
            (stage.tree / target[1:] / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, stage.tree / target[1:] / path)


def let_through() -> list[str]:
    """What the image is made of."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    return [line[1:] for line in lines if line.startswith("!")]


def test_what_an_image_is_made_of():
    names = {path.name for path in ROOT.iterdir() if path.is_dir() and (path / "__init__.py").exists()} - {"tests"}
    assert set(let_through()) == {*names, "pyproject.toml", "README.md"}


def test_it_serves_without_rights_from_a_read_only_file_system(built, tmp_path):
    assert built.user == "10001" and built.said["VOLUME"] == built.folder == "/data"
    port = free_port()
    words = [*json.loads(built.said["ENTRYPOINT"]), *json.loads(built.said["CMD"])]
    service = started(built, [*words, "--port", str(port), "--workers", "1"], port, tmp_path)
    try:
        answered = requests.get(f"{service.origin}/readyz", timeout=30)
        assert answered.status_code == 200, answered.text
        data = built.tree / "data"
        assert {path.stat().st_uid for path in data.iterdir()} == {10001}
        assert {path.stat().st_mode & 0o077 for path in data.iterdir()} == {0}
        check = json.loads(re.search(r"CMD (\[.*\])", built.said["HEALTHCHECK"])[1])
        run(*entering(built), *[word.replace(":8080", f":{port}") for word in check])
    finally:
        service.process.terminate()
        status = service.process.wait(60)
    assert status == 0, service.log.read_text()


def entering(stage: Stage) -> list[str]:
    entered = ["chroot", f"--userspec={stage.user}:{stage.user}", str(stage.tree)]
    variables = [f"{name}={value}" for name, value in stage.variables.items()]
    return [*entered, "env", "-i", f"--chdir={stage.folder}", *variables]


def started(stage: Stage, words: list[str], port: int, folder: Path) -> Service:
    """In a namespace of its own, where all but the data is read-only."""
    tree = shlex.quote(str(stage.tree))
    mounts = (
        f"mount --bind {tree} {tree} && mount --bind {tree}/data {tree}/data && mount -t tmpfs none {tree}/tmp"
        f" && mount -t tmpfs none {tree}/dev/shm && mount -t proc none {tree}/proc && mount -o remount,bind,ro {tree}"
    )
    log = folder / "serve.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", f"{mounts} && exec {shlex.join([*entering(stage), *words])}"],
            stdout=file,
            stderr=file,
        )
    service = Service(f"http://127.0.0.1:{port}", process, log)
    wait_for(service)
    with pytest.raises(OSError, match="Read-only"):
        (Path(f"/proc/{process.pid}/root") / "opt" / "new").touch()
    return service
