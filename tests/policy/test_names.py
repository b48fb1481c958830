"""Where names stand in a text: what makes them, what uses them, and what a rename changes."""

from random import Random

import pytest

from authz_project.language_server.answers import CannotRename, OpenDocument, renamable, renamed, with_name
from checks import testing
from policy.language.completion import words_of
from policy.language.names import NAME, PREDICATE, TYPE, VARIABLE, NameKey, names_of
from policy.rules import compile_text
from tests.properties.random_policies import case_of
from tests.sampling import seeds, some
from tests.service import ROOT

POLICY = """# User in a comment
actor User {}
actor Team extends Party {}
global { roles = ["admin"]; }
resource Folder {
  roles = ["reader", "writer"];
  permissions = ["read"];
  relations = { parent: Folder, owner: User };
  "reader" if "writer";
  role if role on "parent";
  "read" if "reader" or global "admin";
  "writer" if "owner" and is_open(resource);
}
declare is_open(Folder);
has_role(user: User, "reader", folder: Folder) if
  user matches User and is_open(folder) and not is_in(user, ["reader"]) and user = User{"reader"};
is_in(user: User, _) if is_open(user);
test fixture tree { is_open(Folder{"a"}); }
test "User reads" {
  setup { fixture tree; has_role(User{"ann"}, "reader", Folder{"a"}); }
  assert allow(user: User, "read", Folder{"a"}) iff user in [User{"ann"}];
}
"""


def document(text: str) -> OpenDocument:
    return OpenDocument("file:///a.polar", text, 1, "utf-16")


def named(text: str, key: NameKey) -> list[str]:
    """The line and column of each occurrence; with a star where it is made."""
    opened = document(text)
    found = opened.names.of(key)
    assert all(text[each.span.start : each.span.end] == key.name for each in found)
    places = [opened.source.position(each.span.start) for each in found]
    return [f"{line}:{column}{'*' * each.is_definition}" for (line, column), each in zip(places, found)]


@pytest.mark.parametrize(
    ("kind", "name", "places"),
    [
        (TYPE, "User", "2:7* 8:40 15:16 16:16 16:84 17:13 20:34 21:22 21:62"),
        (TYPE, "Party", "3:20"),
        (TYPE, "Folder", "5:10* 8:25 14:17 15:40 18:29 20:57 21:36"),
        (NAME, "reader", "6:13* 9:4 11:14 15:23 16:63 20:48"),
        (NAME, "parent", "8:17* 10:20"),
        (NAME, "admin", "4:20* 11:33"),
        (PREDICATE, "is_open", "12:27 14:9* 16:25 17:25 18:21"),
        (PREDICATE, "is_in", "16:49 17:1*"),
        (PREDICATE, "has_role", "15:1* 20:25"),
        ("fixture", "tree", "18:14* 20:19"),
        ("test", "User reads", "19:7*"),
    ],
)
def test_names_stand_where_they_do(kind, name, places):
    assert " ".join(named(POLICY, NameKey(kind, name))) == places


def test_a_variable_is_one_in_its_statement():
    found = [each for each in document(POLICY).names.occurrences if each.key.kind == VARIABLE]
    assert {each.key.name for each in found} == {"user", "folder"}
    by_statement = {each.key: len(document(POLICY).names.of(each.key)) for each in found if each.key.name == "user"}
    assert sorted(by_statement.values()) == [2, 2, 4]


def test_what_gives_a_name():
    grants = document(POLICY).names.grants
    texts = {name: [POLICY[span.start : span.end].split()[0] for span in spans] for name, spans in grants.items()}
    assert texts == {"reader": ['"reader"', "has_role(user:"], "read": ['"read"'], "writer": ['"writer"']}


def test_a_test_is_called_as_those_know_it_who_run_it():
    """A quote or a line's end in its name is written with a backslash, which is no part of it."""
    text = r'test "a \"quote\", a \\ and a \n" { assert_not allow(User{"a"}, "b", User{"c"}); } test "open'
    found = document(f"actor User {{}} {text}").names.symbols
    (test,) = compile_text(f"actor User {{}} {text.rpartition(' test')[0]}").tests
    assert [each.name for each in found if each.kind == "test"] in ([test.name], [test.name, "open"])


def test_symbols_have_their_places():
    symbols = document(POLICY).names.symbols
    assert [(each.kind, each.name) for each in symbols] == [
        ("actor", "User"), ("actor", "Team"), ("global", "global"), ("resource", "Folder"), ("declare", "is_open"),
        ("rule", "has_role"), ("rule", "is_in"), ("fixture", "tree"), ("test", "User reads"),
    ]  # fmt: skip
    for each in symbols:
        assert POLICY[each.name_span.start : each.name_span.end] == each.name
        assert POLICY[each.span.end - 1] in ";}"
        assert each.span.start <= each.name_span.start and each.name_span.end <= each.span.end
    assert [inner.name for inner in symbols[3].inside] == ["roles", "permissions", "relations"]


@seeds(range(40))
def test_a_broken_text_has_names_too(seed):
    """Whatever is cut out of it."""
    rng = Random(seed)
    start = rng.randrange(len(POLICY))
    text = POLICY[:start] + rng.choice(["", "{", "}", '"', ";", "(("]) + POLICY[start + rng.randrange(30) :]
    names = names_of(words_of(text))
    for each in names.occurrences:
        assert text[each.span.start : each.span.end] == each.key.name
        assert names.at(each.span.start) is not None


def test_a_statement_that_is_being_written_hides_no_declaration():
    text = 'resource Doc { "read" if\n  roles = ["a"]; } test "t" { assert_not\n setup { fixture f; } }'
    assert named(text, NameKey(NAME, "a")) == ["2:13*"]
    assert named(text, NameKey("fixture", "f")) == ["3:18"]


# ---- renaming -----------------------------------------------------------------------------------------------------


def everything_renamed(text: str) -> int:
    """Give each thing another name and then its own again; how many there were."""
    count, opened, rules = 0, document(text), len(compile_text(text).rules)
    for key in {each.key for each in opened.names.occurrences}:
        place = opened.names.of(key)[0].span.start
        try:
            renamable(opened, place)
        except CannotRename:
            continue
        new = "Fresh_name"
        changed = with_name(text, renamed(opened, place, new), new)
        assert changed != text
        again = document(changed)
        back = renamed(again, place, key.name)
        assert with_name(changed, back, key.name) == text
        program = compile_text(changed)
        assert len(program.rules) == rules
        assert testing.run(program).errors == ()
        count += 1
    return count


@pytest.mark.parametrize(
    "path", some(sorted((ROOT / "tests" / "policies").glob("*.polar")), 4), ids=lambda path: path.stem
)
@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_whatever_has_another_name_the_policy_means_the_same(path, db):
    """Its tests pass, after each thing in it was renamed, and named back."""
    assert everything_renamed(path.read_text()) > 5


@seeds(range(8), 4)
@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_a_rename_of_a_random_policy_goes_back(seed, db):
    assert everything_renamed(case_of(seed).policy) > 3


def place_of(text: str) -> int:
    return POLICY.index(text)


@pytest.mark.parametrize(
    ("place", "new", "why"),
    [
        ("# User", "X", "no symbol at this position"),
        ("String", "X", "no symbol at this position"),
        ("has_role", "x", "`has_role` is built-in"),
        ('ann"}, "reader', "x", "no symbol at this position"),
        ("User {}", "Folder", "a type `Folder` already exists"),
        ("User {}", "9", "`9` is not a valid name"),
        ("User {}", "if", "`if` is not a valid name"),
        ("User {}", "", "`` is not a valid name"),
        ("reader", "writer", "a name `writer` already exists"),
        ("reader", 'a"b', "is not a valid name"),
        ("reader", "*", "`*` is not a valid name"),
        ("parent:", "my parent", "`my parent` is not a valid name"),
        ("folder: Folder", "user", "a variable `user` already exists"),
        ("is_open(Folder", "not", "`not` is not a valid name"),
        ("is_open(Folder", "_", "`_` is not a valid name"),
        ("is_open(Folder", "allow", "`allow` is built-in"),
        ("User {}", "Actor", "`Actor` is built-in"),
    ],
)
def test_what_cannot_be_renamed_says_why(place, new, why):
    text = POLICY if place in POLICY else POLICY + "# String"
    with pytest.raises(CannotRename) as refused:
        renamed(document(text), text.index(place), new)
    assert why in str(refused.value)


def test_no_name_is_given_by_which_the_policy_would_not_compile():
    """A type that only rules name is an error if it looks like a misspelt one."""
    rule = "can(user: User, action: String) if role matches Role and has_got(user, role) and grants(role, action);"
    text = f"actor User {{}} {rule}"
    with pytest.raises(CannotRename, match="would no longer compile"):
        renamed(document(text), text.index("Role"), "Users")
    assert len(renamed(document(text), text.index("Role"), "Position")) == 1
    with_error = text + " p(x: Userr);"
    assert len(renamed(document(with_error), text.index("Role"), "Users")) == 1


@pytest.mark.parametrize("word", ["actor", "resource", "role", "permission"])
def test_no_variable_of_a_block_takes_the_name_of_a_word_of_shorthand(word):
    rule = "if knows(actor, other) and is_open(other)"
    text = f'actor User {{}} resource Doc {{ roles = ["a"]; "a" {rule}; }} is_friend(actor) {rule};'
    with pytest.raises(CannotRename, match="has a meaning of its own in a block"):
        renamed(document(text), text.index("other"), word)
    if word != "actor":  # which is a variable of the rule outside
        assert len(renamed(document(text), text.rindex("other"), word)) == 2


def test_blocks_and_fixtures_may_have_names_that_are_keywords_elsewhere():
    text = """actor type {}
resource test extends setup, global { roles = ["a"]; permissions = ["b"]; "b" if "a" and knows(actor, setup); }
resource setup {} resource global {}
test fixture fixture { has_role(type{"x"}, "a", test{"y"}); }
"""
    compile_text(text)
    assert [each.name for each in document(text).names.symbols] == ["type", "test", "setup", "global", "fixture"]
    assert named(text, NameKey(TYPE, "type")) == ["1:7*", "4:33"]
    assert named(text, NameKey(TYPE, "setup")) == ["2:23", "3:10*"]
    assert named(text, NameKey(TYPE, "global")) == ["2:30", "3:28*"]
    assert named(text, NameKey(NAME, "a")) == ["2:49*", "2:83", "4:45"]
    assert [each.key.name for each in document(text).names.occurrences if each.key.kind == VARIABLE] == ["setup"]
    assert named(text, NameKey("fixture", "fixture")) == ["4:14*"]


def test_an_entity_of_a_type_named_global_begins_no_block():
    text = 'actor global {} is_ok(user, it) if user = global{"a"} and knows(user, it);'
    assert named(text, NameKey(TYPE, "global")) == ["1:7*", "1:43"]
    assert len(renamed(document(text), text.index("it)"), "other")) == 2


def test_a_string_with_its_type_is_a_name():
    text = POLICY + 'reads(user: User) if has_role(user, String{"reader"}, _);'
    assert len(document(text).names.of(NameKey(NAME, "reader"))) == 7


def test_a_text_that_no_block_declares_is_no_name():
    text = POLICY.replace('"reader"});', '"reader"}, "other");').replace('["reader"]', '["elsewhere"]')
    with pytest.raises(CannotRename, match="is a string"):
        renamed(document(text), text.index("elsewhere"), "x")


def test_a_string_is_one_name_however_its_characters_are_escaped():
    text = 'actor User {} resource Doc { roles = ["in\\-house"]; permissions = ["read"]; "read" if "in-house"; }'
    for written in ('in\\-house"', 'in-house"'):
        changed = with_name(text, renamed(document(text), text.index(written), "staff"), "staff")
        assert changed.count('"staff"') == 2
    with pytest.raises(CannotRename, match="already exists"):
        renamed(document(text), text.index('read"'), "in-house")


def test_a_role_may_be_called_in_several_words():
    opened = document(POLICY)
    spans = renamed(opened, POLICY.index("reader"), "chief reader")
    changed = with_name(POLICY, spans, "chief reader")
    assert changed.count('"chief reader"') == 6 and 'User{"reader"}' in changed
    assert renamed(opened, POLICY.index("reader"), "reader") == []
