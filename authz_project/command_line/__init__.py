"""The command line, `authz` or `manage.py`: list of commands, dispatch, and error messages.

`overview.py` lists the commands by topic, `running.py` finds and runs a command, `errors.py` reports errors, and
`arguments.py` has types of arguments. Neither `overview.py` nor this file imports Django, so help is printed at once.
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
    os.umask(0o077)  # databases contain password hashes, dumps contain permissions: files are private
    gc.disable()  # during imports, which leave no garbage
    try:
        _run(sys.argv)
        if not sys.stdout.closed:  # closed by the language server
            sys.stdout.flush()  # here, where a failure can still be reported
    except (Exception, KeyboardInterrupt) as reason:
        sys.exit(_part("errors").ending_of(reason))
    finally:
        gc.enable()  # for programs that call this and continue


def _run(argv: list[str]) -> None:
    words = argv[1:]
    if words in HELP:
        print(overview(program_name(argv[0])))
    elif words == ["--version"]:
        print(version_line())
    else:
        _part("running").run(argv)


def _part(name: str) -> Any:
    """Import a module that needs Django only when it is used: the import takes ten times as long as printing help."""
    return import_module(f"{__name__}.{name}")
