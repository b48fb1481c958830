"""What came of testing policy files, as people and as other programs read it.

`ran` is what there is to tell; `text` tells it on a terminal, `junit` to continuous integration, `github` beside the
code of a pull request, and `tap` to the readers of the Test Anything Protocol.
"""

from collections.abc import Callable

from checks.testing.reports.github import github
from checks.testing.reports.junit import junit
from checks.testing.reports.ran import Coverage, Ran
from checks.testing.reports.tap import tap
from checks.testing.reports.text import text

__all__ = ["FORMATS", "Coverage", "Ran"]

FORMATS: dict[str, Callable[[Ran], list[str]]] = {"text": text, "junit": junit, "github": github, "tap": tap}
