"""Files that an import writes: all of them or none, and none of those that it was read from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from authz_project.importers.model import Imported
from policy.errors import AuthzError
from policy.files import Unwritable, shown_name, why, written_file

Write = Callable[[TextIO], object]


class WrongOutput(AuthzError):
    """Writing there would destroy something."""


def inputs_of(imported: Imported, named: Iterable[str]) -> set[Path]:
    """Return the files that were named, and those that say something of what was read."""
    model = imported.model
    files = {each.place.file for each in model.types}
    files |= {each.place.file for each in model.conditions}
    files |= {each.place.file for each in imported.tuples}
    files |= {each.place.file for type_ in model.types for each in type_.relations}
    for scenario in imported.scenarios:
        files |= {scenario.place.file, *(each.place.file for each in scenario.tuples)}
    return {Path(name).resolve() for name in (*files, *named) if name}


def check_outputs(outputs: Iterable[str], inputs: set[Path]) -> None:
    """Refuse a file that is named twice, or that was read."""
    met: list[Path] = []
    for name in outputs:
        path = Path(name).resolve()
        if any(_is_same(path, each) for each in inputs):
            raise WrongOutput(f"`{shown_name(name)}` is read by this import; write to another file")
        if any(_is_same(path, each) for each in met):
            raise WrongOutput(f"`{shown_name(name)}` would be written twice; give the policy and the facts each a file")
        met.append(path)


def write_together(files: Mapping[str, Write]) -> None:
    """Write each file under a temporary name beside its place; rename them once all are complete."""
    places = {name: Path(name).resolve() for name in files}
    beside: dict[str, Path] = {}
    try:
        for name, write in files.items():
            path = places[name]
            if Path(name).exists() and not Path(name).is_file():  # such as a pipe, which nothing can take the place of
                with written_file(name) as file:
                    write(file)
                continue
            new = path.with_name(f".{path.name[:100]}.new")
            with written_file(str(new), replaces=False) as file:
                beside[name] = new
                write(file)
        for name, new in beside.items():
            if places[name].exists():
                new.chmod(places[name].stat().st_mode & 0o777)
            new.replace(places[name])
    except OSError as reason:
        raise Unwritable(f"cannot write `{shown_name(name)}`: {why(reason)}") from None
    finally:
        for new in beside.values():
            with suppress(OSError):
                new.unlink(missing_ok=True)


def _is_same(one: Path, other: Path) -> bool:
    with suppress(OSError):
        return one == other or one.samefile(other)
    return False
