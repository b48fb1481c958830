"""Every policy on the pages of the documents compiles, passes its tests, and answers as the page says.

A page is read from the top. A block ```polar is a whole policy. What follows it, up to the next one, is about it:

    ```facts      facts that are stored, one in a line
    ```ask        questions as `authz ask` takes them, each with its answer after `#`
    ```problems   what the compiler says of it, each problem in a line; without such a block it says nothing
"""

import re
import shlex
from dataclasses import dataclass, field
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from checks import testing
from facts import store
from facts.wire import fact_from_text
from policy import rules
from policy.language import parse, parser
from policy.language.format import formatted
from policy.language.source import PolicyRejected, Problem, Source
from policy.publishing import publish
from policy.values import ABSTRACT, PRIMITIVES
from tests.service import ROOT

DOCS = ROOT / "authz_project" / "docs"
PAGES = ("language", "patterns", "moving", "concepts")
CONSTRUCTS = "constructs"  # of the language, with its messages: more than its page shows
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass
class Sample:
    """A policy of a page, and what the page says about it."""

    page: str
    line: int
    policy: str
    facts: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    problems: list[str] | None = None

    def __str__(self) -> str:
        return f"{self.page}.md:{self.line}"

    @property
    def source(self) -> Source:
        return Source(self.policy, f"{self.page}.polar")


def page_of(name: str) -> str:
    folder = ROOT / "tests" / "policy" if name == CONSTRUCTS else DOCS
    return (folder / f"{name}.md").read_text()


def samples_of(page: str) -> list[Sample]:
    text, found = page_of(page), []
    for block in FENCE.finditer(text):
        language, content = block.groups()
        lines = content.splitlines()
        if language == "polar":
            found.append(Sample(page, text.count("\n", 0, block.start()) + 1, content))
        elif language == "facts":
            found[-1].facts += lines
        elif language == "ask":
            found[-1].questions += lines
        elif language == "problems":
            found[-1].problems = lines
    return found


SAMPLES = [sample for page in (*PAGES, CONSTRUCTS) for sample in samples_of(page)]


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_a_policy_is_what_its_page_says(sample, environment):
    try:
        program = rules.compile_source(sample.source)
    except PolicyRejected as reason:
        assert told(reason.problems, sample) == sample.problems
        return
    assert told(program.warnings, sample) == (sample.problems or [])
    assert testing.run(program).errors == ()
    assert program.tests or sample.questions or sample.problems, "nothing shows what it means"
    publish(environment.pk, sample.policy, None)
    store.apply(environment.pk, [store.Inserts([fact_from_text(line) for line in sample.facts])])
    assert [f"{question}  # {answered(question)}" for question, _ in asked(sample)] == sample.questions


@pytest.mark.parametrize("sample", [sample for sample in SAMPLES if sample.page in PAGES[1:]], ids=str)
def test_a_policy_is_laid_out_as_all_are(sample):
    """Except on the pages of the language and its messages, where some show what formatting would remove."""
    assert formatted(sample.policy) == sample.policy


def told(problems: tuple[Problem, ...], sample: Sample) -> list[str]:
    """As the page shows them: the line and the words, without the place within the line."""
    lines = [sample.source.position(problem.span.start)[0] for problem in problems]
    advice = [f" ({problem.hint})" if problem.hint else "" for problem in problems]
    return [f"{line}: {problem.message}{hint}" for line, problem, hint in zip(lines, problems, advice, strict=True)]


def asked(sample: Sample) -> list[tuple[str, str]]:
    return [tuple(re.split(r" +# ", line)) for line in sample.questions]


def answered(question: str) -> str:
    printed = StringIO()
    try:
        call_command("ask", *shlex.split(question), stdout=printed, stderr=StringIO())
    except CommandError as refusal:
        return f"refused: {refusal}"
    return ", ".join(printed.getvalue().splitlines()) or "nothing"


# ---- what pages name -------------------------------------------------------------------------------------------------

OURS = (*PAGES, "local-sql", "performance", "contributing")


@pytest.mark.parametrize("page", OURS)
def test_every_file_and_program_that_a_page_names_exists(page):
    text = page_of(page)
    named = re.findall(r"`((?:\.ci|authz_project|checks|facts|localsql|policy|tests)/[\w./]*)`", text)
    programs = re.findall(r"python -m (tests\.[\w.]+)", text)
    named += [f"{program.replace('.', '/')}.py" for program in programs]
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_program_that_measures_is_named():
    folder = ROOT / "tests" / "benchmarks"
    programs = {path.stem for path in folder.glob("*.py") if 'if __name__ == "__main__"' in path.read_text()}
    named = {
        name for name in programs if re.search(rf"`(python -m tests\.benchmarks\.)?{name}\b", page_of("performance"))
    }
    assert programs - named == set()


def test_every_word_is_explained_once():
    words = re.findall(r"^\| \*([\w ]+)\* \|", page_of("contributing"), re.MULTILINE)
    assert len(words) == len(set(words)) > 10


# ---- the page of the language is complete ----------------------------------------------------------------------------

LANGUAGE = page_of("language")
WORDS = {*parser.RESERVED, *parser.CONTEXTUAL, *parser.LEGACY, "new", *PRIMITIVES, *ABSTRACT, "role", "permission"}
SIGNS = {"=", *parser.COMPARISONS, "@current_unix_time", "_", "#", "::", ";"}
PREDICATES = {"allow", "has_role", "has_permission", "has_relation", "has_group"}


@pytest.mark.parametrize("word", sorted(WORDS | SIGNS | PREDICATES))
def test_every_word_of_the_language_is_named(word):
    assert re.search(rf"`[^`\n]*(?<!\w){re.escape(word)}(?!\w)[^`\n]*`", FENCE.sub("", LANGUAGE))


def test_every_production_of_the_grammar_has_an_example(monkeypatch):
    """Also those that are there to refuse what people write and the language does not have."""
    seen: set[tuple[str, ...]] = set()

    def watched(production):
        def build(p):
            seen.add(tuple(symbol.type for symbol in p.slice))
            production(p)

        build.__doc__ = production.__doc__
        return build

    productions = {name: watched(production) for name, production in parser._productions().items()}
    monkeypatch.setattr(parser, "_productions", lambda: productions)
    monkeypatch.setattr(parser, "_parser", parser._parser.__wrapped__)
    for sample in samples_of("language") + samples_of(CONSTRUCTS):
        try:
            parse(sample.source)
        except PolicyRejected:
            assert sample.problems
    known = {(each.name, *each.prod) for each in parser._parser().productions[1:]}
    missing = sorted(" ".join(each) for each in known - seen)
    assert not missing, "\n".join(missing)
