"""Every sample of every document runs as it stands, one after the other, as somebody types them from the top."""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

from localsql.bindings import bindings_from_text
from tests.samples import (
    ADDRESS,
    DOCUMENTS,
    ELSEWHERE,
    FENCE,
    FOR_OTHER_PROGRAMS,
    NOT_RUN,
    OF_POLICIES,
    Document,
    a_reader,
    are_alike,
    bare,
    hold_to_its_tests,
    is_as_told,
)
from tests.service import ROOT

OF_PEERS = {"zed", "fga", "perm", "cedar"}  # their models, beside the policies that these become
RUN_HERE = {"sh", "text", "json", "sql", "python", "polar"}
OF_A_READER = [document for document in DOCUMENTS if document.start]
OF_NOBODY = [document for document in DOCUMENTS if not document.start and str(document) not in ELSEWHERE]
# A command with its words, in a line of shell or within the text.
GIVEN = re.compile(r"(?:^|[`|;&(]\s*)(?:python manage\.py|authz) (\w+)([^`…|;&<>\n]*+)(?!…)", re.MULTILINE)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """Return the folder of a reader whose server has begun with nothing, and made its database."""
    folder = tmp_path_factory.mktemp("begun")
    with a_reader(folder):
        return folder


@pytest.fixture(scope="module")
def read_before(tmp_path_factory, begun):
    """Returns the folder of a reader at the end of the page, which is read once, however many go on from there."""

    @cache
    def read_before(document: Document) -> Path:
        folder = tmp_path_factory.mktemp("read")
        with a_reader(folder, after=begun) as reader:
            reader.read(document)
        return folder

    return read_before


@pytest.mark.parametrize("document", OF_A_READER, ids=str)
def test_every_sample_runs_as_it_stands(document, tmp_path, rewrite, read_before, begun):
    before = document.before()
    if before is None and not rewrite and any(each.before() == document for each in DOCUMENTS):
        read_before(document)  # others go on from its end
        return
    with a_reader(tmp_path, rewrite, read_before(before) if before else begun) as reader:
        reader.read(document)


@pytest.mark.parametrize("document", OF_NOBODY, ids=str)
def test_a_page_without_a_start_has_policies_alone(document):
    """And those about policies may say more of each: see `tests/test_policy_samples.py`."""
    samples = document.samples
    languages = {sample.language for sample in samples}
    if not languages & OF_POLICIES:
        for sample in samples:
            if sample.language == "polar":
                hold_to_its_tests(sample.text)
    assert {sample.text for sample in samples if sample.language == "sh" and sample.commands()} == set()
    assert "python" not in languages


@pytest.mark.parametrize("page", ELSEWHERE)
def test_a_page_with_a_test_of_its_own_is_read_there(page):
    assert f'"{page}"' in (ROOT / ELSEWHERE[page]).read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_sample_is_found(document):
    """Also those of another form would be: without a language, or by four spaces."""
    text = document.text
    assert text.count("```") == 2 * len(document.samples)
    assert re.findall(r"^(?:    |\t)(?! *[*\d-]).*", FENCE.sub("", text), re.MULTILINE) == []
    known = RUN_HERE | FOR_OTHER_PROGRAMS | OF_POLICIES | OF_PEERS | {"yaml"}
    assert {sample.language for sample in document.samples} <= known


def test_something_is_answered():
    assert any(sample.answer() for document in DOCUMENTS for sample in document.samples)
    assert OF_A_READER


def test_what_is_not_run_is_there_and_names_what_exists():
    samples = [sample for document in DOCUMENTS for sample in document.samples if sample.language == "sh"]
    lines = [line for sample in samples for line in sample.text.splitlines()]
    assert set(NOT_RUN) - {bare(line) for line in lines} == set()
    exported = set(re.findall(r"^export (\w+)=", "\n".join(NOT_RUN), re.MULTILINE)) - {"KEY"}
    text = (ROOT / "authz_project" / "settings.py").read_text()
    assert [name for name in sorted(exported) if f'"{name}"' not in text] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_command_is_one_that_can_be_given(document):
    """Also those that are not run, and those within the text, where a name may stand alone."""
    for name, words in GIVEN.findall(document.text):
        if words.strip():
            options_of(name, shlex.split(words, comments=True))
        assert name in get_commands()


def test_commands_are_found_in_the_text():
    given = {name for document in DOCUMENTS for name, _ in GIVEN.findall(document.text)}
    assert {"ask", "createsuperuser", "load_policy", "serve"} <= given


def options_of(name: str, words: list[str]):
    """What a command makes of the words; it fails on what it does not know."""
    return load_command_class(get_commands()[name], name).create_parser("manage.py", name).parse_args(words)


def test_the_address_is_that_of_serve():
    options = options_of("serve", [])
    assert f"http://{options.host}:{options.port}" == ADDRESS
    for document in DOCUMENTS:
        assert set(re.findall(r"http://127\.0\.0\.1:\d+", document.text)) <= {ADDRESS}


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_bindings_can_be_read(document):
    for sample in document.samples:
        if sample.language == "yaml":
            bindings_from_text(sample.text)


# ---- what is as told ------------------------------------------------------------------------------------------------


def test_a_time_stands_for_any_time():
    assert is_as_told("at 2026-11-03 14:02 by key 1\n", "at 2025-01-01 00:00 by key 1\n")
    assert is_as_told("x 2026-11-03T14:02:11.123456Z y", "x … y")
    assert not is_as_told("at 2026-11-03 14:02 by key 2\n", "at 2025-01-01 00:00 by key 1\n")
    assert not is_as_told("allowed\n", "denied\n")


def test_what_is_left_out_of_json_stands_for_anything():
    found = {"at": "2026-11-03T14:02:11Z", "rows": [1, 2, 3], "more": {"a": None}}
    assert are_alike(found, {"at": "2025-01-01T00:00:00Z", "rows": [1, "…"], "more": "…"})
    assert are_alike(found, {"rows": [1, 2, 3], "…": "…"})
    assert not are_alike(found, {"rows": [1, 2, 3]})
    assert not are_alike(found, {"rows": [2, "…"], "…": "…"})
    assert not are_alike({"a": 1}, {"a": True})
    assert not are_alike({}, {"a": "…", "…": "…"})
