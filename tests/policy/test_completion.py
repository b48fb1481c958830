"""What can stand at a place of a policy, whether or not it is one yet. `|` is the place."""

from pathlib import Path

import pytest

from policy.language.completion import Completions, completions, outline_of, words_of
from policy.language.parser import parse_with_tokens
from policy.language.source import Source
from policy.rules import compile_text

POLICIES = sorted((Path(__file__).parent.parent / "policies").glob("*.polar"))
TYPES = """actor User {}
global { roles = ["boss"]; permissions = ["audit"]; }
resource Org { roles = ["member", "admin"]; "member" if "admin"; }
resource Thing { permissions = ["touch"]; }
resource Repo extends Thing {
  roles = ["reader"];
  permissions = ["read"];
  relations = { org: Org };
"""
REST = '}\nis_fun(x: User) if has_role(x, "member", o) and o matches Org;\ntest fixture team { }\n'
NAMES = {"reader", "read", "touch"}  # that Repo declares, or inherits


def found(text: str) -> Completions:
    place = text.index("|")
    return completions(text.replace("|", "", 1), place)


def in_block(text: str) -> set[str]:
    return {each.text for each in found(f"{TYPES}  {text}\n{REST}").options}


def at_top(text: str) -> set[str]:
    return {each.text for each in found(f"{TYPES}{REST}{text}").options}


def quoted(names: set[str]) -> set[str]:
    return {f'"{name}"' for name in names}


# ---- in a block --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('"|"', NAMES),
        ('"|', NAMES),
        ('"re|"', NAMES),
        ('"read" if "|"', NAMES | {"org", "member", "admin"}),
        ('"read" if "|" on "org";', {"member", "admin"}),
        ('"read" if "member" on "|"', {"org"}),
        ('"read" if global "|"', {"boss", "audit"}),
        ('roles = ["|"];', {"member", "admin"}),
        ('permissions = ["|"];', set()),
        ("|", quoted(NAMES) | {"roles", "permissions", "relations"}),
        ('"read" |', {"if"}),
        ('"read" if "member" |', {"on", "and", "or"}),
        ('"read" if "member" on |', {'"org"'}),
        ("relations = { a: | };", {"User", "Org", "Thing", "Repo", "Actor", "Resource"}),
        ("relations = { | };", set()),
        ('# "|', set()),
    ],
)
def test_in_a_block(text, names):
    assert in_block(text) == names


def test_a_condition_may_be_a_name_or_a_call():
    names = in_block('"read" if |')
    assert quoted(NAMES | {"org", "member", "admin"}) | {"not", "global", "is_fun", "has_role"} <= names


# ---- at the top --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("resource |", set()),
        ("resource New |", {"extends"}),
        ("resource New extends |", {"User", "Org", "Thing", "Repo", "Actor", "Resource"}),
        ("is_old(u: |)", {"User", "Org", "Thing", "Repo", "Actor", "Resource", "String", "Integer", "Boolean"}),
        ("declare is_old(|", {"User", "Org", "Thing", "Repo", "Actor", "Resource", "String", "Integer", "Boolean"}),
        ('allow(u: User, "|", r: Repo)', {"read", "touch"}),
        ('has_role(u: User, "|", r: Org)', {"member", "admin"}),
        ('has_relation(r: Repo, "|", o: Org)', {"org"}),
        ('p(r) if r matches Repo and has_role(u, "|", r);', {"reader"}),
        ("p(u: User) |", {"if"}),
        ("p(u: User) if q(u) |", {"and", "or"}),
        ("p(u: User) if u matches |", {"User", "Org", "Thing", "Repo", "Actor", "Resource", "String", "Integer",
                                       "Boolean"}),
        ("test |", {"fixture"}),
    ],
)  # fmt: skip
def test_at_the_top(text, names):
    assert at_top(text) == names


def test_a_statement_begins_with_a_word_of_the_language_or_a_predicate():
    names = at_top("|")
    assert {"actor", "resource", "global", "declare", "test", "allow", "has_role", "is_fun"} <= names


def test_variables_are_those_of_the_rule():
    options = found(f"{TYPES}{REST}p(user: User, thing: Repo) if q(|, other);").options
    assert {each.text for each in options if each.kind == "variable"} == {"user", "thing", "other"}


# ---- in a test ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("|", {"assert", "assert_not", "assert_never", "setup"}),
        ("setup { fixture | }", {"team"}),
        ('setup { has_role(User{"a"}, "|", Repo{"x"}); }', {"reader"}),
        ('setup { } assert allow(User{"a"}, "|", Org{"x"});', {"read", "touch", "audit"}),  # Org has none: all
        ('assert allow(User{"a"}, action: String, Repo{"x"}) |', {"iff"}),
        ('assert allow(User{"a"}, action: String, Repo{"x"}) iff |', {"action"}),
        ('assert allow(User{"a"}, action: String, Repo{"x"}) iff action in ["|"]', {"read", "touch"}),
    ],
)
def test_in_a_test(text, names):
    assert at_top(f'test "t" {{ {text} }}') == names


def test_facts_begin_with_predicates_and_fixtures():
    names = at_top('test "t" { setup { | } }')
    assert {"has_role", "has_relation", "is_fun", "fixture"} <= names and "assert" not in names
    assert "assert" not in at_top('test "t" { assert | }')


# ---- any text ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ('"re|ad" if', "read"),
        ('"re|', "re"),
        ('"|" if', ""),
        ("is_f|", "is_f"),
        ("is_f|un(x)", "is_fun"),
        ("|", ""),
    ],
)
def test_the_word_around_the_place_is_replaced(text, replaced):
    whole = f"{TYPES}  {text}\n{REST}"
    chosen = found(whole)
    assert whole.replace("|", "", 1)[chosen.start : chosen.end] == replaced


def test_what_is_being_written_is_no_name_yet():
    assert "is_ne" not in at_top("is_ne|(x)")


def test_a_mistake_hides_nothing_elsewhere():
    broken = TYPES.replace("global {", "global { { ( ' ;").replace('"member" if "admin";', '"member if (;')
    options = found(f'{broken} "read" if "|" on "org";\n{REST}').options
    assert [each.text for each in options] == ["member", "admin"]


def test_details_say_where_a_name_comes_from():
    options = {each.text: each for each in found(f'{TYPES} "read" if "|"\n{REST}').options}
    assert (options["reader"].kind, options["reader"].detail) == ("role", "role of Repo")
    assert options["org"].detail == "relation of Repo → Org"
    assert options["member"].detail == 'role of Org, through "org"'


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_names_of_whole_policies_are_the_compilers(path):
    """What a policy declares is the same to the outline and to the compiler."""
    program = compile_text(path.read_text())
    outline = outline_of(words_of(program.source.text))
    for name, block in program.types.items():
        if name not in outline.types:
            continue
        known = outline.of(name)
        assert set(known.roles) == set(block.roles), name
        assert set(known.permissions) == set(block.permissions), name
        assert set(known.relations) == set(block.relations), name
    assert set(outline.types) <= set(program.types)


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_words_are_the_lexers(path):
    text = path.read_text()
    _, tokens = parse_with_tokens(Source(text))
    assert [(word.kind, word.start) for word in words_of(text)] == [(token.type, token.lexpos) for token in tokens]


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_every_place_of_a_policy_has_an_answer(path):
    text = path.read_text()
    for place in range(0, len(text) + 1, 29):
        cut = completions(text[:place], place)
        whole = completions(text, place)
        assert 0 <= cut.start <= cut.end <= place
        assert 0 <= whole.start <= place <= whole.end <= len(text)
