"""The command line, `authz` or `manage.py`: which commands there are, how one begins, and how it ends.

`overview.py` lists the commands by what they are about, `running.py` finds and runs the one that is asked for, and
`endings.py` says what stopped it. Only the last two import Django: help and versions are there at once.
"""

import gc
import os
import sys
from importlib import import_module
from typing import Any

from authz_project.command_line.overview import overview, program_name, version_line

HELP: tuple[list[str], ...] = (["help"], ["--help"], ["-h"], [])


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "authz_project.settings")
    os.umask(0o077)  # databases hold password hashes, dumps who may do what: files are their owner's
    gc.disable()  # while modules are imported, of which nothing is garbage
    try:
        _run(sys.argv)
        if not sys.stdout.closed:  # as the language server leaves it
            sys.stdout.flush()  # here, where it can still be said that it fails
    except (Exception, KeyboardInterrupt) as reason:
        sys.exit(_part("endings").ending_of(reason))
    finally:
        gc.enable()  # for a program that calls this and goes on


def _run(argv: list[str]) -> None:
    words = argv[1:]
    if words in HELP:
        print(overview(program_name(argv[0])))
    elif words == ["--version"]:
        print(version_line())
    else:
        _part("running").run(argv)


def _part(name: str) -> Any:
    """Import a module of this package that needs Django, only when it is used: that takes ten times as long as help."""
    return import_module(f"{__name__}.{name}")
