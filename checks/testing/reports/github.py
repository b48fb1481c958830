"""Lines by which GitHub shows failures, and rules that no test exercises, beside the code; and the results in words."""

from checks.testing.reports.ran import Ran
from policy.management.github import annotation, problem_line
from policy.publishing import results_of


def github(ran: Ran) -> list[str]:
    if ran.problems:
        return [problem_line(problem, ran.bundle) for problem in ran.problems]
    lines = []
    for test in ran.report.tests:
        for one in test.assertions:
            if not one.passed:
                file, line = ran.bundle.line_of_file(one.line)
                lines.append(annotation("error", one.message, f"test {test.name}", file, line=line))
    if ran.coverage:
        for file, line, rule in ran.coverage.missing:
            lines.append(annotation("warning", f"no test exercises {rule}", "Coverage", file, line=line))
    if ran.coverage_failure:
        lines.append(annotation("error", ran.coverage_failure, "Coverage"))
    lines.append(results_of(ran.report) if ran.report.tests else "there are no tests")
    return [*lines, ran.coverage.sentence] if ran.coverage else lines
