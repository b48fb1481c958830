"""The tests of policy files, without loading them."""

import sys
from typing import Any

from django.core.management.base import CommandError

from checks.testing import coverage, policy_tests
from policy import rules
from policy.errors import AuthzError
from policy.files import Bundle, bundle_of_files
from policy.language.rejection import PolicyRejected
from policy.management.command import FILES, ServiceCommand, rejection
from policy.publishing import results_of
from policy.rules.program import Program
from policy.testing import TestReport


class Command(ServiceCommand):
    help = "Run the tests in policy files and report each assertion. Nothing that is stored is seen or changed."

    def add_arguments(self, parser):
        parser.add_argument("files", nargs="+", metavar="FILE", help=FILES)
        parser.add_argument("--fail-fast", action="store_true", help="stop at the first assertion that fails")
        parser.add_argument("--coverage", dest="covering", action="store_true", help="list the rules no test exercises")

    def handle(self, *, files: list[str], fail_fast: bool, covering: bool, **options: Any) -> None:
        try:
            bundle = bundle_of_files(files, sys.stdin)
            program = rules.compile_text(bundle.text, bundle.filename)
            report = policy_tests.run(program, fail_fast)
            lines = [*_report_lines(report, bundle), *(_coverage_lines(program, bundle) if covering else ())]
        except PolicyRejected as reason:
            raise rejection(reason, bundle, self.stderr) from None
        except AuthzError as reason:
            raise CommandError(reason.message) from None
        self.stdout.write("\n".join(lines))
        if not report.success:
            raise CommandError(results_of(report))


def _report_lines(report: TestReport, bundle: Bundle) -> list[str]:
    lines = []
    for test in report.tests:
        lines.append(f"{'FAIL' if test.failures else 'ok'} {test.name}: {test.passed} of {test.total}")
        for one in test.assertions:
            written = " ".join(one.text.split())
            place = bundle.place_of_line(one.line)
            lines.append(f"  {'ok' if one.passed else 'FAIL'} {place}: {written}")
            if not one.passed:
                lines.append(f"       {one.message}")
    return [*lines, results_of(report) if report.tests else "there are no tests"]


def _coverage_lines(program: Program, bundle: Bundle) -> list[str]:
    missing = coverage.uncovered(program, coverage.covered(program))
    total = len(program.written)
    lines = [f"{total - len(missing)} of {total} rules are exercised by a test"]
    for span in missing:
        line, _ = program.source.position(span.start)
        lines.append(f"  {bundle.place_of_line(line)}: {' '.join(program.source.text[span.start : span.end].split())}")
    return lines
