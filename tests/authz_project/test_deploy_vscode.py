"""The extension for Visual Studio Code: it packs as it stands, and starts the language server."""

import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from authz_project import __version__
from tests.service import ROOT

SOURCES = ROOT / "authz_project" / "deploy" / "vscode"
EXTENSION = json.loads((SOURCES / "package.json").read_text())
VSCE = "@vscode/vsce@3.2.2"  # which Node 20 runs

# The two modules that only the editor has, and what the extension makes of them.
STARTED = """
const load = require("module")._load;
require("module")._load = (name, ...rest) =>
  name === "vscode" ? { workspace: { getConfiguration: () => ({ get: () => "/srv/authz/bin/authz" }) } }
  : name === "vscode-languageclient/node" ? { LanguageClient: class {
      constructor(...given) { this.given = given; }
      start() { console.log(JSON.stringify(this.given)); }
      stop() { console.log("stopped"); }
    } }
  : load(name, ...rest);
const extension = require(process.argv[1]);
extension.activate();
extension.deactivate();
"""


def node(*words: object, folder: Path) -> str:
    if not shutil.which(str(words[0])):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"there is no {words[0]}")
    done = subprocess.run([str(word) for word in words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_it_names_is_there():
    contributed = EXTENSION["contributes"]
    (language,), (grammar,) = contributed["languages"], contributed["grammars"]
    for path in (EXTENSION["main"], language["configuration"], grammar["path"]):
        assert (SOURCES / path).exists()
    json.loads((SOURCES / language["configuration"]).read_text())
    scope = json.loads((SOURCES / grammar["path"]).read_text())["scopeName"]
    assert grammar["scopeName"] == scope and grammar["language"] == language["id"] == "polar"
    assert EXTENSION["version"] == __version__
    assert all(re.fullmatch(r"[0-9.]+", version) for version in EXTENSION["dependencies"].values())


def test_a_folder_cannot_choose_the_program_that_is_run():
    (setting,) = EXTENSION["contributes"]["configuration"]["properties"].values()
    assert setting["scope"] == "machine"  # settings of a folder come with the repository that is opened


def test_it_starts_the_language_server(tmp_path):
    started, stopped = node("node", "-e", STARTED, SOURCES / "extension.js", folder=tmp_path).splitlines()
    _, _, server, client = json.loads(started)
    assert server == {"command": "/srv/authz/bin/authz", "args": ["language_server"]}
    assert client == {"documentSelector": [{"language": "polar"}]} and stopped == "stopped"


@pytest.mark.long
def test_it_packs(tmp_path):
    folder = tmp_path / "extension"
    shutil.copytree(SOURCES, folder)
    quietly = ("--silent", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts")
    node("npm", "install", *quietly, folder=folder)
    node("npm", "install", *quietly, "--omit=optional", "--prefix", tmp_path / "tools", VSCE, folder=tmp_path)
    packed = tmp_path / "polar.vsix"
    options = ("--skip-license", "--allow-missing-repository", "--out", packed)
    node(tmp_path / "tools" / "node_modules" / ".bin" / "vsce", "package", *options, folder=folder)
    names = set(zipfile.ZipFile(packed).namelist())
    own = {each.name for each in SOURCES.iterdir()} - {"README.md"} | {"readme.md"}
    assert {f"extension/{name}" for name in own} <= names
    assert "extension/node_modules/vscode-languageclient/node.js" in names
    assert packed.stat().st_size < 1_000_000
