"""Writes the condition of a caveat out again, to say which part of it is meant."""

import json

from authz_project.importers.spicedb.syntax import (
    Called,
    Cel,
    FieldOf,
    Identifier,
    ListWritten,
    Literal,
    MapWritten,
    Operation,
)


def written(cel: Cel) -> str:
    match cel:
        case Literal(value):
            return json.dumps(value, ensure_ascii=False) if not isinstance(value, bytes) else repr(value)
        case Identifier(name):
            return name
        case Operation("[]", (base, index)):
            return f"{_side(base)}[{written(index)}]"
        case Operation("?", (chosen, yes, no)):
            return f"{_side(chosen)} ? {_side(yes)} : {_side(no)}"
        case Operation(sign, (side,)):
            return f"{sign}{_side(side)}"
        case Operation(sign, (left, right)):
            return f"{_side(left)} {sign} {_side(right)}"
        case FieldOf(base, name):
            return f"{_side(base)}.{name}"
        case Called(function, arguments, base):
            return f"{f'{_side(base)}.' if base else ''}{function}({_listed(arguments)})"
        case ListWritten(elements):
            return f"[{_listed(elements)}]"
        case MapWritten(entries):
            return f"{{{', '.join(f'{written(key)}: {written(value)}' for key, value in entries)}}}"
    raise AssertionError(cel)


def _side(cel: Cel) -> str:
    return f"({written(cel)})" if isinstance(cel, Operation) and cel.sign != "[]" else written(cel)


def _listed(cels: tuple[Cel, ...]) -> str:
    return ", ".join(map(written, cels))
