"""Preview the impact of publishing policy files."""

import sys
from collections.abc import Iterator
from typing import Any

from checks.compare.differences import Compared
from checks.compare.preview import MOST_SHOWN, SECONDS, Flip, Preview, preview
from checks.explain.explain import Explanation, explanation_to_text
from policy.files import bundle_of_files, text_of_file
from policy.language.source import PolicyRejected
from policy.management.command import FILES, PolicyCommand, above_zero, failures, number, rejection, warnings
from policy.models import Environment
from policy.publishing import active_version, results_of


class Command(PolicyCommand):
    help = "Show what publishing policy files would change: tests, unused facts, decisions. Nothing is published."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("files", nargs="+", metavar="FILE", help=FILES)
        questions = parser.add_argument(
            "--questions",
            metavar="FILE",
            help='Checks to compare: one per line, as `allow(User:ann, "read", Repo:acme)`, or a decision log (default:'
            " a random sample).",
        )  # fmt: skip
        parser.add_argument(
            "--seconds",
            type=above_zero,
            default=SECONDS,
            help="Time limit for the random sample (default: %(default)g).",
        )
        seed = parser.add_argument(
            "--seed", type=int, default=0, help="Seed of the random sample (default: %(default)s)."
        )
        self.never_with(seed, questions)
        parser.add_argument(
            "--show", type=number, default=MOST_SHOWN, metavar="N",
            help="Examples to print for each kind of change (default: %(default)s).",
        )  # fmt: skip
        parser.add_argument("--explain", action="store_true", dest="explains", help="Print why each decision differs.")
        parser.add_argument("--strict", action="store_true", help="Exit with 1 if tests fail or decisions differ.")

    def act(
        self, environment: Environment, *, files: list[str], questions: str | None, seconds: float, seed: int,
        show: int, explains: bool, strict: bool, **options: Any,
    ) -> None:  # fmt: skip
        bundle = bundle_of_files(files)
        asked = text_of_file(questions) if questions is not None else None
        try:
            with self.progress("comparing decisions"):
                found = preview(
                    environment.pk, bundle.text, bundle.filename, asked,
                    seconds=seconds, seed=seed, most=show, explains=explains,
                )  # fmt: skip
        except PolicyRejected as reason:
            raise rejection(reason, bundle, self.stderr) from None
        for line in warnings(found.draft.program, bundle) + failures(found.draft.report, bundle):
            self.stderr.write(line)
        active = active_version(environment.pk)
        names = ((active and active.filename) or "", bundle.filename)
        for line in _lines(found, names, explains, self.is_coloured):
            self.stdout.write(line)
        if strict and (found.differ or found.refuses or not found.draft.report.success):
            sys.exit(1)


def _lines(found: Preview, names: tuple[str, str], explains: bool, is_coloured: bool) -> Iterator[str]:
    yield f"tests: {results_of(found.draft.report) if found.draft.report.tests else 'none'}"
    if found.draft.untested:
        yield f"  {found.draft.untested}"
    yield f"unused facts: {'none' if not found.unused else ''}".rstrip()
    yield from (f"  {unused.facts!s:>12}  {unused.signature}" for unused in found.unused)
    yield f"rules: {found.differs}"
    yield f"decisions: {found.decisions}"
    yield from (f"  {_kind_line(each)}" for each in found.kinds if each.kind.is_decision)
    if found.others:
        yield f"roles and relations: {found.others}"
        yield from (f"  {_kind_line(each)}" for each in found.kinds if not each.kind.is_decision)
    for flip in found.flips:
        yield f"  {'+ allowed' if flip.is_allowed else '- denied '}  {flip.text}"
        if explains:
            yield from (f"      {line}" for line in _explained(flip, names, is_coloured))
    if found.differ > len(found.flips):
        yield f"  and {found.differ - len(found.flips):,} more; use --show N to print more"
    yield from (f"  not answered: {reason}" for reason in found.refused)


def _kind_line(each: Compared) -> str:
    tally = each.tally
    changes = f"{tally.gained:,} newly allowed, {tally.lost:,} newly denied"
    return f"{each.kind}: {tally.flips:,} of {tally.answers:,} would change, {changes} ({each.extent})"


def _explained(flip: Flip, names: tuple[str, str], is_coloured: bool) -> Iterator[str]:
    for title, goal, name in zip(("now", "then"), flip.sides, names):
        first, *lines = explanation_to_text(Explanation(None, (goal,)), name, is_coloured)
        yield f"{title}: {first.partition('  ')[0]}"
        yield from lines
