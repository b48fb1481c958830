"""The command line, `authz` or `manage.py`, and the list of its commands.

Only `command_runner`, which runs a command, imports Django, so help is printed at once.
"""

import gc
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from authz_project import __version__

HELP: tuple[list[str], ...] = (["help"], ["--help"], ["-h"], [])
GROUPS: dict[str, dict[str, str]] = {
    "Service": {
        "serve": "prepare the database and run the server",
        "load_example": "load an example policy with facts, or list the examples",
        "api_keys": "create, list, rotate and revoke API keys",
        "createsuperuser": "create a login for the admin",
        "changepassword": "change the password of a login",
        "version": "print versions of the service, Python, database and policies",
    },
    "Policy": {
        "load_policy": "test and publish policy files, or publish an earlier version again",
        "check_policy": "report problems in policy files",
        "format_policy": "format policy files",
        "test_policy": "run the tests in policy files",
        "preview_policy": "show which decisions policy files would change",
        "compare_policies": "show whether a policy can allow more than another, with any facts",
        "prove": "prove what a policy never allows, or print facts with which it does",
        "how": "print which facts would allow something",
        "show_policy": "print the policy, its history, a diff, or a diagram",
        "language_server": "run the language server for editors (needs authz-project[editor])",
        "import_model": "convert an OpenFGA or SpiceDB model into a policy and facts",
    },
    "Facts": {
        "load_facts": "store facts from a file",
        "dump_facts": "write all facts to a file",
        "delete_facts": "delete the facts that match a pattern, or past ones from history for good",
        "audit_facts": "list stored facts that the policy doesn't use",
        "sync_facts": "compare facts with rows of your databases and apply the differences, or drain an outbox",
    },
    "Decisions": {
        "ask": "check access, list actions, resources or actors, and explain decisions",
        "review_access": "list who gained and lost access between two moments",
        "replay_decisions": "repeat the requests of a decision log and compare the answers",
        "mcp": "serve checks to AI agents by the Model Context Protocol (needs authz-project[mcp])",
        "ask_local": "print the SQL that answers a request in your own database",
        "check_bindings": "report problems in data bindings",
    },
    "History": {
        "follow_changes": "print changes as they happen",
        "prune": "delete expired facts and old history",
    },
    "In a Django project": {
        "authz_bindings": "print data bindings of the project's models",
        "authz_drain": "send the changes in the project's outbox to the server",
    },
    "Operations": {
        "check": "check settings and files; with --deploy, everything that production needs",
        "migrate": "create or upgrade the database schema",
        "spaces": "list and create spaces (schemas), and move environments between them",
        "backup": "back up the database while the service runs",
        "verify": "verify the database, or a backup",
    },
}


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "authz_project.settings")
    os.umask(0o077)  # databases contain password hashes, dumps contain permissions: files are private
    gc.disable()  # during imports, which leave no garbage
    open_streams()
    try:
        try:
            _run(sys.argv)
        finally:
            if not sys.stdout.closed:  # closed by the language server
                sys.stdout.flush()  # here, where a failure can still be reported
    except (Exception, KeyboardInterrupt) as reason:
        sys.exit(_runner().ending_of(reason))
    finally:
        gc.enable()  # for programs that call this and continue


def open_streams() -> None:
    """Open standard streams that the process was started without, so that no other file gets their numbers.

    Their use fails, as that of closed ones does in other programs; only messages to standard error are dropped.
    """
    unusable = {"stdin": (os.O_WRONLY, "r"), "stdout": (os.O_RDONLY, "w"), "stderr": (os.O_WRONLY, "w")}
    for name, (flags, mode) in unusable.items():
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8"))


def _run(argv: list[str]) -> None:
    words = argv[1:]
    if words in HELP:
        print(overview(program_name(argv[0])))
    elif words == ["--version"]:
        print(version_line())
    else:
        _runner().CommandLine(argv).execute()


def _runner() -> Any:
    """Import what needs Django only when it is used: the import takes ten times as long as printing help."""
    return import_module("authz_project.command_runner")


def overview(program: str) -> str:
    """Return the output of `authz --help`."""
    width = max(len(name) for group in GROUPS.values() for name in group)
    lines = [version_line(), "", f"usage: {program} COMMAND …", ""]
    for title, commands in GROUPS.items():
        lines += [title, *(f"  {name:<{width}}  {about}" for name, about in commands.items()), ""]
    lines.append(f"Options: `{program} COMMAND --help`. Commands of Django: `{program} help --all`.")
    return "\n".join(lines)


def version_line() -> str:
    return f"authz {__version__}"


def program_name(called: str) -> str:
    """Return how the program is called: `authz`, or in a clone `python manage.py`."""
    name = Path(called).name
    return f"python {name}" if name.endswith(".py") else name
