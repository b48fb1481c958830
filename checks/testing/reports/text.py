"""Every assertion on a line, for people."""

from checks.testing.reports.ran import Coverage, Ran
from policy.language.notes import spelled_out
from policy.publishing import results_of


def text(ran: Ran) -> list[str]:
    lines = []
    for test in ran.report.tests:
        lines.append(f"{'FAIL' if test.failures else 'ok'} {spelled_out(test.name)}: {test.passed} of {test.total}")
        for one in test.assertions:
            line = spelled_out(f"{ran.bundle.place_of_line(one.line)}: {' '.join(one.text.split())}")
            lines.append(f"  {'ok' if one.passed else 'FAIL'} {line}")
            if not one.passed:
                lines.append(f"       {spelled_out(one.message)}")
    lines.append(results_of(ran.report) if ran.report.tests else "there are no tests")
    return [*lines, *coverage_lines(ran.coverage)]


def coverage_lines(coverage: Coverage | None) -> list[str]:
    if coverage is None:
        return []
    return [coverage.sentence, *(spelled_out(f"  {file}:{line}: {rule}") for file, line, rule in coverage.missing)]
