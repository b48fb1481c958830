"""A text that is sent from the page where policies are edited: its form, and the outcome of checking or publishing."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from django import forms

from policy import publishing
from policy.errors import AuthzError, PolicyTestsFailed, Unavailable
from policy.figures import MAX_NOTE, note_fault
from policy.language.source import PolicyRejected, Source
from policy.models import Environment
from policy.pages.excerpts import Excerpt, excerpts_of_failures, excerpts_of_problems
from policy.publishing import Ignored, Published, ReplacedMeanwhile, ignored_facts, remarks_on
from policy.revisions import By
from policy.serializers import MAX_FILENAME

SPARE_NUMBERS = 500  # line numbers beyond the text, for lines that are added without JavaScript
MOST_NUMBERS = 20_000


class PolicyForm(forms.Form):
    """What the page sends.

    `seen` is the version that was active when the text was begun: if another one is active when it is published,
    nothing is changed, and publishing has to be repeated. `stamp` is that of the draft that the page knows.
    """

    environment = forms.ModelChoiceField(Environment.objects.all(), empty_label=None)
    filename = forms.CharField(required=False, strip=False, max_length=MAX_FILENAME)
    source = forms.CharField(required=False, strip=False, widget=forms.Textarea)
    seen = forms.IntegerField(required=False, min_value=0, max_value=2**31 - 1, widget=forms.HiddenInput)
    stamp = forms.IntegerField(required=False, widget=forms.HiddenInput)
    force = forms.BooleanField(required=False)
    note = forms.CharField(required=False, max_length=MAX_NOTE)  # one line: what changes, and why

    def clean_note(self) -> str:
        if fault := note_fault(self.cleaned_data["note"]):
            raise forms.ValidationError(fault)
        return self.cleaned_data["note"]

    def clean_source(self) -> str:
        # Browsers send every line end as two characters.
        return self.cleaned_data["source"].replace("\r\n", "\n").replace("\r", "\n")


@dataclass
class Submitted:
    """What the page says after a text was sent. The text is stored only if `published` is set."""

    published: Published | None = None
    note: str = ""  # good news
    trouble: str = ""
    excerpts: list[Excerpt] = field(default_factory=list)
    may_force: bool = False


def check(sent: dict, with_facts: bool) -> Submitted:
    """Compile and test the text without publishing it; `with_facts`, also say which stored facts it ignores."""
    return _outcome(sent, partial(_checked, with_facts))


def publish(sent: dict, by: By) -> Submitted:
    return _outcome(sent, partial(_published, by))


def _outcome(sent: dict, act: Callable[[dict, Source], Submitted]) -> Submitted:
    source = Source(sent["source"], sent["filename"])
    try:
        return act(sent, source)
    except PolicyRejected as reason:
        count = len(reason.problems)
        trouble = f"{count} problem{'' if count == 1 else 's'}; nothing is published"
        return Submitted(trouble=trouble, excerpts=excerpts_of_problems(source, reason.problems))
    except PolicyTestsFailed as reason:
        trouble = f"{publishing.results_of(reason.report)}; nothing is published"
        return Submitted(trouble=trouble, excerpts=excerpts_of_failures(source, reason.report), may_force=True)
    except ReplacedMeanwhile as reason:
        became = f"version {reason.number} became active" if reason.number else "the active version was withdrawn"
        return Submitted(trouble=f"{became} meanwhile; publish once more to replace it with what is below")
    except (AuthzError, Unavailable) as reason:
        return Submitted(trouble=reason.message)


def _checked(with_facts: bool, sent: dict, source: Source) -> Submitted:
    drafted = publishing.draft(source.text, source.filename, force=True)
    ignored = ignored_facts(sent["environment"].pk, drafted.program) if with_facts else Ignored()
    note = "; ".join(["this is a policy", *remarks_on(drafted, ignored)])
    warnings = excerpts_of_problems(source, drafted.program.warnings)
    failures = excerpts_of_failures(source, drafted.report)
    if failures:
        return Submitted(trouble=note, excerpts=failures + warnings, may_force=True)
    return Submitted(note=f"{note}; nothing is published yet", excerpts=warnings)


def _published(by: By, sent: dict, source: Source) -> Submitted:
    where, name, force, note = sent["environment"].pk, source.filename, sent["force"], sent["note"]
    replaces = sent["seen"] or 0
    published = publishing.publish(where, source.text, name, force=force, by=by, note=note, replaces=replaces)
    return Submitted(published=published)


def line_numbers(text: str, excerpts: list[Excerpt]) -> list[tuple[int, str, str]]:
    """Return number, severity and message of each line, and of empty lines that may be added."""
    meant = {one.line: one for one in reversed(excerpts)}
    count = min(text.count("\n") + 1 + SPARE_NUMBERS, MOST_NUMBERS)
    marks = ((number, meant.get(number)) for number in range(1, count + 1))
    return [(number, one.severity if one else "", one.message if one else "") for number, one in marks]
