"""The parts of conditions that have no equal in Polar."""

from __future__ import annotations

from collections.abc import Iterator

from authz_project.importers.model import AllOf, AnyOf, Condition, Model, Negation, Test, Unsupported
from authz_project.importers.polar.walk import relations_of
from authz_project.importers.report import Report
from authz_project.importers.values import described, polar_type, sums


def report_unsupported(model: Model, report: Report) -> None:
    for condition in model.conditions:
        users = ", ".join(_users(model, condition))
        for part in unsupported_parts(condition.test):
            about = f"; {users} would wait for it in vain" if users else ""
            report.lost(part.place, f"condition {condition.name}: `{part.text}`: {part.reason}{about}")
        for total in sums(condition.test):
            message = f"`{described(total)}` is worked out when a tuple is imported, or given by the request as a whole"
            report.changed(total.place, f"condition {condition.name}: {message}")
        for parameter in condition.parameters:
            if condition.needs_every_value and polar_type(parameter.type) is None:
                about = f"; {users} would wait for it in vain" if users else ""
                message = f"condition {condition.name}: values of type {parameter.type} have no equal here{about}"
                report.lost(parameter.place, message)
            if "double" in parameter.type and polar_type(parameter.type):
                report.changed(
                    parameter.place, f"condition {condition.name}: {parameter.name} takes whole numbers alone"
                )


def unsupported_parts(test: Test) -> Iterator[Unsupported]:
    match test:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from unsupported_parts(part)
        case Negation(inner):
            yield from unsupported_parts(inner)
        case Unsupported():
            yield test


def _users(model: Model, condition: Condition) -> Iterator[str]:
    for type_, relation in relations_of(model):
        if any(each.condition == condition.name for each in relation.subjects):
            yield f"{type_.name}#{relation.name}"
