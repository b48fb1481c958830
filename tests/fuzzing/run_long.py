"""Fuzz one target with Atheris (`pip install -e ".[fuzz]"`), guided by the coverage of the service's own code.

    python -m tests.fuzzing.run_long policy --seconds 600
    python -m tests.fuzzing.run_long requests --seconds 600 --keep

Ends with 1 at the first input that raises what is no documented refusal, and says where that input is. With `--keep`,
the smallest set of inputs that reaches the same code is kept under `tests/fuzzing/corpus`.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TARGETS = ("policy", "requests", "bindings")
INSTRUMENTED = {
    "policy": ["policy.language", "policy.rules"],
    "requests": ["authz_project", "checks", "facts", "localsql", "policy"],
    "bindings": ["localsql", "yaml", "sqlglot"],
}
WORDS = {
    "policy": (
        "actor", "resource", "global", "roles", "permissions", "relations", "declare", "extends", "if", "and", "or",
        "not", "on", "in", "matches", "has_role", "has_relation", "has_permission", "allow", "test", "setup", "assert",
        "assert_not", "fixture", "assert allow(", "iff", "==", "!=", "<=", "_", "#", "\\\"", "Integer", "String",
        "Boolean", "true", "false", "{}", "[", "];", "(", ");", ":",
    ),
    "requests": (
        "\\\"type\\\":", "\\\"id\\\":", "null", "true", "-1", "1e999", "[]", "{}", "context_facts", "\\\\u0000",
        "\\\\ud800", "as_of", "policy_version", "page_size", "page_token", "data_bindings", "expires_at", "String",
        "Integer", "Boolean", "_", "calls", "constraints", "inserts", "deletes",
    ),
    "bindings": (
        "facts:", "query:", "sql_types:", "domains:", "dialect:", "sqlite", "mysql", "dbs:", "outbox:", "not_null:",
        "SELECT", "FROM", "WHERE", "UNION", "JOIN", "ORDER BY", "LIMIT", "WITH", "CASE WHEN", "CAST(", "::", "--",
        "/*", "'", "''", "$$", "$1", ":x", ";", "(", ")", "&a", "*a", "<<:", "!!", "- ", "|", ">-", "\\x00",
    ),
}  # fmt: skip  # what inputs are made of, as libFuzzer's dictionaries have it
SLOWEST = 20  # seconds of one input, on a machine that has much else to do
LARGEST = 2048  # MB


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--keep", action="store_true", help="minimize what was found, and add it to the corpus")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, found = Path(name), Path(name) / "found"
        found.mkdir()
        kept = Path(__file__).with_name("corpus") / asked.target
        limits = [f"-max_total_time={asked.seconds}", f"-seed={asked.seed}", f"-artifact_prefix={Path.cwd()}/"]
        done = _fuzz(asked.target, folder, [*limits, str(found), str(kept)])
        if done or not asked.keep:
            return min(done, 1)
        smallest = folder / "smallest"
        smallest.mkdir()
        done = _fuzz(asked.target, folder, ["-merge=1", str(smallest), str(kept), str(found)])
        if not done and any(smallest.iterdir()):
            shutil.rmtree(kept)
            kept.mkdir()
            for path in smallest.iterdir():
                data = path.read_bytes()
                (kept / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
        return min(done, 1)


def _fuzz(target: str, folder: Path, options: list[str]) -> int:
    """Run libFuzzer in a process of its own, which it ends by itself."""
    (folder / "database").mkdir(exist_ok=True)
    (folder / "words").write_text("".join(f'"{word}"\n' for word in WORDS[target]))
    variables = os.environ | {"AUTHZ_FUZZ_FOLDER": str(folder / "database"), "PYTHONPATH": str(Path.cwd())}
    program = folder / "program"  # libFuzzer starts itself again to merge, by the name of what runs
    program.write_text(f"#!{sys.executable}\nfrom tests.fuzzing.run_long import begin\nbegin({target!r})\n")
    program.chmod(0o700)
    options = [
        f"-timeout={SLOWEST}",
        f"-rss_limit_mb={LARGEST}",
        "-max_len=2048",
        f"-dict={folder / 'words'}",
        "-print_final_stats=1",
        *options,
    ]
    return subprocess.run([program, *options], env=variables, check=False).returncode


def begin(target: str) -> None:
    """Fuzz in this process, with libFuzzer's options from the command line."""
    import atheris

    from tests import standalone

    with atheris.instrument_imports(include=INSTRUMENTED[target], enable_loader_override=False):
        standalone.set_up(f"sqlite:///{os.environ['AUTHZ_FUZZ_FOLDER']}/authz.sqlite3")
        from tests.fuzzing import targets
    logging.disable()
    atheris.Setup(sys.argv, targets.begun(target))
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
