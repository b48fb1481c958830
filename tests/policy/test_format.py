"""One layout for every policy: its words, its comments and its meaning stay."""

import json
import re
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.language import ast, parse
from policy.language.format import formatted
from policy.language.parser import CONTEXTUAL, parse_with_tokens
from policy.language.source import PolicyRejected, Source
from policy.rules import compile_source
from tests.policy.conftest import GOLDEN, cases
from tests.policy.random_trees import policies
from tests.policy.rules_text import rules_text
from tests.policy.trees import print_policy
from tests.properties.random_policies import case_of
from tests.sampling import seeds, together
from tests.service import ROOT
from tests.yardstick import seconds_at_most

STRING_OR_COMMENT = re.compile(r'"(?:[^"\\]|\\[\s\S])*"|#[^\n]*')
FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HERE = re.compile(r"<<'END'\n(.*?)^END$", re.MULTILINE | re.DOTALL)
# Words that stay where they are; the others go to the end of the line before a comment.
SOLID = {"NAME", *CONTEXTUAL.values(), "STRING", "INTEGER", "TRUE", "FALSE", "NOW", "RPAREN", "RBRACKET", "RBRACE"}
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def comments_of(text: str) -> list[str]:
    return [found.rstrip() for found in STRING_OR_COMMENT.findall(text) if found.startswith("#")]


def in_order(text: str) -> list[str]:
    """The comments, among the words that they must not pass."""
    _, tokens = parse_with_tokens(Source(text))
    solid = [(token.lexpos, token.value) for token in tokens if token.type in SOLID]
    comments = [found for found in STRING_OR_COMMENT.finditer(text) if found[0].startswith("#")]
    return [word for _, word in sorted([*solid, *((found.start(), found[0].rstrip()) for found in comments)])]


def alone_on_lines(text: str) -> list[str]:
    """The comments that have a line of their own."""
    found = STRING_OR_COMMENT.finditer(text)
    starts = [(text.rfind("\n", 0, each.start()) + 1, each) for each in found if each[0].startswith("#")]
    return [each[0].rstrip() for start, each in starts if not text[start : each.start()].strip(" \t\r\ufeff")]


def check(text: str) -> str:
    """Hold the layout of a text against all that is promised of it."""
    result = formatted(text)
    assert parse(Source(result)) == parse(Source(text))
    assert formatted(result) == result
    assert comments_of(result) == comments_of(text)
    assert in_order(result) == in_order(text)
    missing = list(alone_on_lines(text))
    for comment in alone_on_lines(result):
        if comment in missing:
            missing.remove(comment)
    assert not missing, "what had a line of its own has none"
    check_lines(result)
    return result


def check_lines(result: str) -> None:
    strings = [found.span() for found in STRING_OR_COMMENT.finditer(result)]
    assert result == "" or (result.endswith("\n") and not result.endswith("\n\n") and result[0] != "\n")
    for found in re.finditer(r"\n\n\n|[ \t\r]\n|\t|\r", result):
        inside = any(start <= found.start() < end for start, end in strings)
        assert inside, f"{found[0]!r} at {found.start()} of {result}"


# ---- texts that are there ----------------------------------------------------------------------------------------


@together("case", cases("format"))
def test_a_policy_has_this_layout(case, golden):
    golden(case, check(case.read_bytes().decode()))


POLICIES = [
    *sorted((ROOT / "tests" / "policies").rglob("*.polar")),
    *sorted(path for folder in ("ast", "rules", "rejected") for path in (GOLDEN / folder).glob("*.polar")),
]


@together("path", POLICIES)
def test_a_policy_stays_what_it_is(path):
    text = path.read_bytes().decode()
    result = check(text)
    try:
        before = meaning(text)
    except PolicyRejected as refused:
        with pytest.raises(PolicyRejected) as refused_again:
            compile_source(Source(result))
        assert messages(refused_again.value) == messages(refused)
    else:
        assert meaning(result) == before


def meaning(text: str) -> str:
    """The program, but for the places that its warnings name."""
    return rules_text(replace(compile_source(Source(text)), warnings=()))


def messages(refused: PolicyRejected) -> list[str]:
    return sorted(re.sub(r"line \d+", "line", problem.message) for problem in refused.problems)


def policies_in(value) -> set[str]:
    """What stands under `policy` anywhere in the data."""
    if isinstance(value, list):
        return {text for each in value for text in policies_in(each)}
    if not isinstance(value, dict):
        return set()
    own = {value["policy"]} if isinstance(value.get("policy"), str) else set()
    return own | {text for each in value.values() for text in policies_in(each)}


@pytest.mark.parametrize("name", ["decisions", "local", "wire"])
def test_the_policies_of_the_cases_stay_what_they_are(name):
    texts = sorted(policies_in(json.loads((ROOT / "tests" / "cases" / f"{name}.json").read_bytes())))
    assert len(texts) > 5
    for text in texts:
        if is_a_policy(text):
            check(text)


def is_a_policy(text: str) -> bool:
    try:
        return bool(parse(Source(text)).items)
    except PolicyRejected:
        return False


def test_the_policies_of_the_documents_stay_what_they_are():
    documents = [ROOT / "README.md", *(ROOT / "authz_project" / "docs").rglob("*.md")]
    texts = [text for path in documents for found in (FENCED, HERE) for text in found.findall(path.read_text())]
    samples = [text for text in texts if is_a_policy(text)]
    assert samples
    for text in samples:
        check(text)


def test_the_page_shows_the_layout_as_it_is():
    page = (ROOT / "authz_project" / "docs" / "language.md").read_text()
    (shown,) = FENCED.findall(page.partition("\n## Layout\n")[2].partition("\n## ")[0])
    assert formatted(shown) == shown


@together("case", cases("syntax_rejected"))
def test_a_text_that_is_no_policy_is_refused(case):
    text = case.read_bytes().decode()
    with pytest.raises(PolicyRejected) as refused:
        parse(Source(text, case.name))
    with pytest.raises(PolicyRejected) as refused_here:
        formatted(text, case.name)
    assert refused_here.value.descriptions == refused.value.descriptions


# ---- random texts ------------------------------------------------------------------------------------------------

COMMENTS = ("# one", "#two", "#\t# three \t", "# \u00e9\u2028\x0c", '# "', "#")
BETWEEN = st.lists(st.sampled_from(["\n", "\r\n", " ", "\t", "\n\n\n", "\ufeff", *(f"{text}\n" for text in COMMENTS)]))


def with_between(text: str, between) -> str:
    """The words of the text, with something else between them."""
    _, tokens = parse_with_tokens(Source(text))
    return "".join(f"{between()}{token.value} " for token in tokens) + between()


@settings(unhurried, max_examples=200)
@given(policies, st.data())
def test_a_random_tree_with_comments_everywhere(policy, data):
    text = with_between(print_policy(policy), lambda: "".join(data.draw(BETWEEN)))
    check(text)


def random_between(rng: Random, density: float) -> str:
    if rng.random() >= density:
        return rng.choice(["", "", " ", "\n", "\t", "\n\n"])
    lines = [rng.choice([" ", "\n", "\n\n", "  \r\n "]) + rng.choice(COMMENTS) for _ in range(rng.randint(1, 3))]
    return "\n".join(lines) + rng.choice(["\n", "\r\n\r\n"])


@seeds(range(30), 3)
@pytest.mark.parametrize("density", [0.02, 0.5, 1])
def test_a_random_policy_with_comments_everywhere(seed, density):
    rng = Random(seed)
    text = with_between(case_of(seed).policy, lambda: random_between(rng, density))
    result = check(text)
    assert meaning(result) == meaning(text)


@seeds(range(30), 3)
def test_the_layout_does_not_depend_on_the_one_before(seed):
    rng = Random(seed)
    text = case_of(seed).policy
    once = formatted(with_between(text, lambda: " "))
    assert formatted(with_between(text, lambda: rng.choice(["", "\n", "\t", "  ", "\r\n"]))) == once


@settings(unhurried, max_examples=200)
@given(policies)
def test_a_random_tree_has_one_layout(policy):
    text = print_policy(policy)
    once = formatted(with_between(text, lambda: " "))
    assert formatted(with_between(text, lambda: "\n")) == once
    assert check(text)[:1] == once[:1]


# ---- width and time ----------------------------------------------------------------------------------------------


def test_lines_are_broken_at_a_hundred_columns():
    for path in sorted((GOLDEN / "format").glob("*.expected")):
        assert [line for line in path.read_text().splitlines() if len(line.partition("  #")[0]) > 100] == [], path
    name = "x" * 100
    exact = f"p({name[:96]});\n"
    assert (len(exact), formatted(exact)) == (101, exact)
    assert formatted(f"p({name[:97]});\n") == f"p(\n  {name[:97]}\n);\n"


def test_nesting_to_the_limit_is_laid_out():
    inner = "q(x)"
    for depth in range(199):
        inner = f"not ({inner} and r(x))" if depth % 2 else f"({inner} or r(x))"
    text = f"p(x) if {inner};"
    if is_a_policy(text):
        check(text)
    check(f"p(x) if {'(' * 200}q(x){')' * 200};")
    check(f"p(x) if {'not ' * 200}q(x);")


def test_a_long_text_takes_as_long_as_its_parts():
    """A thousand of each, and one of a thousand: neither takes more than its length accounts for."""
    rule = "allow(actor: User, action, resource: Repo) if a(actor) and b(action) and (c(resource) or d(actor));\n"
    names = ", ".join(f'"role {number}"' for number in range(20_000))
    conditions = " and ".join(f"a(x) # {number}\n" for number in range(20_000))
    texts = [rule * 5_000, f"resource Repo {{ roles = [{names}]; }}", f"p(x) if {conditions};", ";\n" * 100_000]
    for text in texts:
        with seconds_at_most(20):
            formatted(text)


def test_a_layout_is_a_text_of_lines():
    assert isinstance(parse(Source(formatted("p();"))).items[0], ast.Rule)
    assert formatted("") == formatted("\n\n") == formatted("\ufeff") == formatted(";") == ""
