"""Schemas, relationships and validation files: what is understood, and what is said of what is wrong."""

from datetime import UTC, datetime

import pytest

from authz_project.importers.ir import (
    NOWHERE,
    AllOf,
    Always,
    AnyOf,
    Arrow,
    Computed,
    Constant,
    Direct,
    Exclusion,
    ExpectedCheck,
    GivenValue,
    ImportRejected,
    Intersection,
    IsTrue,
    Itself,
    ModelChoice,
    ModelComparison,
    ModelParameter,
    Negation,
    NetworkEnd,
    Nothing,
    OneOf,
    Subject,
    SubjectList,
    Sum,
    Thing,
    Tuple,
    Union,
    Unsupported,
    Who,
)
from authz_project.importers.spicedb import context_of, imported


@pytest.fixture
def read(tmp_path):
    def read(schema: str, *others: str, name: str = "schema.zed"):
        (tmp_path / name).write_text(schema)
        paths = []
        for number, text in enumerate(others):
            suffix = "yaml" if text.startswith("assertions") else "txt"
            paths.append(tmp_path / f"other{number}.{suffix}")
            paths[-1].write_text(text)
        return imported(tmp_path / name, paths)

    return read


@pytest.fixture
def problems(read, tmp_path):
    def problems(*texts: str, name: str = "schema.zed") -> list[str]:
        with pytest.raises(ImportRejected) as rejected:
            read(*texts, name=name)
        return str(rejected.value).replace(f"{tmp_path}/", "").splitlines()

    return problems


NAMES = ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("a", Computed("a")),
        ("a + b + c", Union((Computed("a"), Computed("b"), Computed("c")))),
        ("(a + b) + c", Union((Computed("a"), Computed("b"), Computed("c")))),
        ("a & b & c", Intersection((Computed("a"), Computed("b"), Computed("c")))),
        ("a - b - c", Exclusion(Computed("a"), Union((Computed("b"), Computed("c"))))),
        ("(a - b) - c", Exclusion(Exclusion(Computed("a"), Computed("b")), Computed("c"))),
        ("a + b & c", Intersection((Union((Computed("a"), Computed("b"))), Computed("c")))),
        ("a + b - c", Exclusion(Union((Computed("a"), Computed("b"))), Computed("c"))),
        ("a - b & c", Exclusion(Computed("a"), Intersection((Computed("b"), Computed("c"))))),
        ("a - (b - c)", Exclusion(Computed("a"), Exclusion(Computed("b"), Computed("c")))),
        ("d->a", Arrow("d", "a")),
        ("d.any(a)", Arrow("d", "a")),
        ("d.all(a) + b", Union((Arrow("d", "a", every=True), Computed("b")))),
        ("nil", Nothing()),
        ("a - nil", Exclusion(Computed("a"), Nothing())),
        ("self", Itself()),
    ],
)
def test_what_a_permission_is_made_of(read, written, expected):
    relations = "\n".join(f"relation {name}: doc" for name in NAMES)
    found = read(f"use self\ndefinition doc {{\n{relations}\npermission p = {written}\n}}")
    relation = found.model.types[0].relations[-1]
    assert (relation.name, relation.is_permission, relation.expression) == ("p", True, expected)


def test_what_a_relation_takes(read):
    found = read("""
use expiration
definition tenant/user {}
definition group { relation member: tenant/user | group#member }
caveat at_night(hour int) { hour >= 22 || hour < 6 }
definition doc {
  relation viewer: tenant/user | tenant/user:* | group#member with at_night | tenant/user with at_night and expiration
  relation parent: doc#... | group with expiration
}
""")
    viewer, parent = found.model.types[2].relations
    assert viewer.subjects == (
        Subject("tenant/user"),
        Subject("tenant/user", wildcard=True),
        Subject("group", "member", condition="at_night"),
        Subject("tenant/user", condition="at_night", expires=True),
    )
    assert (viewer.expression, viewer.is_permission) == (Direct(), False)
    assert parent.subjects == (Subject("doc"), Subject("group", expires=True))


def test_self_and_expiration_are_names_unless_they_are_used(read):
    found = read("""
definition user {}
caveat expiration(now int) { now < 5 }
definition doc {
  relation self: user with expiration
  relation and: user
  permission p = self + and
}
""")
    doc = found.model.types[1]
    assert doc.relations[0].subjects == (Subject("user", condition="expiration"),)
    assert doc.relations[2].expression == Union((Computed("self"), Computed("and")))


def test_comments_are_kept(read):
    found = read("""// All of the shop.

/**
 * People who
 * buy.
 */
definition user {}

// What is sold
definition item {  // by us
  // who made it
  relation maker: user  // not us

  /* anybody */
  permission view = maker
  // nothing else
}

// Opening hours
caveat open(hour int) {
  // not at noon
  hour != 12
}
// the end
""")
    user, item = found.model.types
    assert found.model.comment == ("All of the shop.", "the end")
    assert user.comment == ("People who", "buy.")
    assert item.comment == ("What is sold", "by us", "nothing else")
    assert [relation.comment for relation in item.relations] == [("who made it", "not us"), ("anybody",)]
    assert found.model.conditions[0].comment == ("Opening hours", "not at noon")


def test_partials_stand_where_they_are_named(read):
    found = read("""
use partial
partial owned { relation owner: user  permission manage = owner }
partial shared { ...owned
  relation guest: user }
definition user {}
definition album { ...shared
  permission view = guest + manage }
""")
    assert [relation.name for relation in found.model.types[1].relations] == ["owner", "manage", "guest", "view"]


def test_partials_may_include_many_others(read):
    partials = "\n".join(f"partial p{each} {{ ...p{each + 1} }}" for each in range(2500))
    found = read(f"{partials}\npartial p2500 {{ relation owner: d }}\ndefinition d {{ ...p0 }}")
    assert [relation.name for relation in found.model.types[0].relations] == ["owner"]


def test_imports_are_relative_and_once(read, tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "people.zed").write_text("definition user {}")
    (tmp_path / "shop" / "all.zed").write_text('import "people.zed"\nimport "people.zed"\nimport "all.zed"')
    found = read('use import\nimport "shop/all.zed"\ndefinition item { relation owner: user }')
    assert [each.name for each in found.model.types] == ["user", "item"]


# ---- conditions -----------------------------------------------------------------------------------------------------

PARAMETERS = (
    "n int, u uint, s string, b bool, t timestamp, until timestamp, d duration, ip ipaddress, names list<string>, "
    "f double, any any, m map<string>, k bytes"
)
N, ONE = GivenValue("n"), Constant(1)
SAME, LESS = ModelComparison("==", N, ONE), ModelComparison("<", N, ONE)


def within(first, last):
    return AllOf((ModelComparison(">=", GivenValue("ip"), first), ModelComparison("<=", GivenValue("ip"), last)))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("n == 1", SAME),
        ("n < 1 && n == 1 && u != 1", AllOf((LESS, SAME, ModelComparison("!=", GivenValue("u"), ONE)))),
        ("b || !b", AnyOf((IsTrue("b"), Negation(IsTrue("b"))))),
        (f"n == {'0' * 5000}1", SAME),
        ("b == false", ModelComparison("==", GivenValue("b"), Constant(False))),
        ("true", Always(True)),
        ("s == 'it\\'s'", ModelComparison("==", GivenValue("s"), Constant("it's"))),
        ('s in ["a", r"b\\d"]', OneOf(GivenValue("s"), (Constant("a"), Constant("b\\d")))),
        ("s in names", OneOf(GivenValue("s"), GivenValue("names"))),
        ("!(s in names)", Negation(OneOf(GivenValue("s"), GivenValue("names")))),
        ("t < until", ModelComparison("<", GivenValue("t"), GivenValue("until"))),
        ("t < timestamp('1970-01-02T00:00:00Z')", ModelComparison("<", GivenValue("t"), Constant(86400))),
        (
            "t - until < duration('1h30m')",
            ModelComparison("<", Sum(GivenValue("t"), GivenValue("until"), True), Constant(5400)),
        ),
        ("n + 1 > -0x10", ModelComparison(">", Sum(N, ONE), Constant(-16))),
        ("b ? n == 1 : n < 1", ModelChoice(IsTrue("b"), SAME, LESS)),
        ("ip.in_cidr('10.0.0.0/8')", within(Constant(10 << 24), Constant((11 << 24) - 1))),
        ("ip.in_cidr(s)", within(NetworkEnd("s", False), NetworkEnd("s", True))),
    ],
)  # fmt: skip
def test_what_a_caveat_asks(read, written, expected):
    found = read(f"caveat c({PARAMETERS}) {{ {written} }}")
    assert found.model.conditions[0].test == expected
    assert found.model.conditions[0].text == written
    assert found.model.conditions[0].parameters[8] == ModelParameter("names", "list<string>")


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("f < 1.5", "fractions are not supported"),
        ("s < 'b'", "values of type string cannot be ordered"),
        ("s.startsWith('a')", "the function `startsWith` is not supported"),
        ("any == 1", "a value of type any is not supported"),
        ("m.a == 'b'", "member access and indexing are not supported"),
        ("m['a'] == 'b'", "member access and indexing are not supported"),
        ("{'a': 1} == m", "this expression is not supported"),
        ("names.all(x, x == 'a')", "the function `all` is not supported"),
        ("n * 2 < 5", "`*` is not supported"),
        ("n == s", "values of type int and string cannot be compared"),
        ("t < timestamp('2026-01-01T00:00:00.5Z')", "'2026-01-01T00:00:00.5Z' has a fraction of a second"),
        ("n == 9223372036854775808", "numbers beyond 64 bits are not supported"),
        (f"n == {'9' * 5000}", "numbers beyond 64 bits are not supported"),
        (f"n == 0x{'f' * 5000}", "numbers beyond 64 bits are not supported"),
        ("k == b'x'", "a value of type bytes is not supported"),
        ("x == 1", "`x` is not a parameter of the condition"),
        ("n", "`n` is neither true nor false"),
    ],
)
def test_what_no_policy_can_ask(read, written, reason):
    found = read(f"caveat c({PARAMETERS}) {{\n  {written} }}").model.conditions[0]
    assert found.test == Unsupported(written, reason)
    assert (found.test.place.line, found.test.place.column) == (2, 3)


def test_what_can_be_asked_beside_it_is_kept(read):
    found = read(f"caveat c({PARAMETERS}) {{ n == 1 && f < 2.5 }}").model.conditions[0].test
    assert found.parts[0] == ModelComparison("==", N, ONE)
    assert isinstance(found.parts[1], Unsupported)


# ---- relationships --------------------------------------------------------------------------------------------------

SCHEMA = """
definition user {}
caveat at(from int) { from > 3 }
definition group { relation member: user | user:* | group#member }
definition doc { relation viewer: user with at | group#member }
"""


def test_relationships(read):
    found = read(SCHEMA, """
// a comment
group:eng#member@user:*
group:eng#member@group:a/b-c|d_=+#member

  doc:1#viewer@user:ann#...[at:{"from": 4, "x": [{}]}][expiration:2030-01-01T00:00:00.5Z]  \r
""")  # fmt: skip
    member = Thing("group", "eng"), "member"
    assert found.tuples == (
        Tuple(*member, Who("user", "*")),
        Tuple(*member, Who("group", "a/b-c|d_=+", "member")),
        Tuple(
            Thing("doc", "1"), "viewer", Who("user", "ann"), "at", (("from", 4), ("x", [{}])),
            datetime(2030, 1, 1, 0, 0, 0, 500000, UTC),
        ),
    )  # fmt: skip
    assert [(each.place.line, each.place.column) for each in found.tuples] == [(3, 1), (4, 1), (6, 3)]


def test_validation_files(read):
    found = read(
        """---
schema: |-
  definition user {}
  definition doc { relation viewer: user }
relationships: >-
  doc:1#viewer@user:ann

  doc:1#viewer@user:bob
assertions:
  assertTrue:
    - doc:1#viewer@user:ann
  assertFalse:
    - 'doc:1#viewer@user:eve with {"hour": 3}'
  assertCaveated:
    - "doc:2#viewer@user:ann"
validation:
  doc:1#viewer:
    - "[user:ann] is <doc:1#viewer>"
    - "[user:bob] is <doc:1#viewer>"
    - "[user:cat[...]] is <doc:1#viewer>"
  doc:2#viewer:
    - "[user:* - {user:ann, user:bob}] is <doc:2#viewer>"
  doc:3#viewer: []
""",
        name="shop.yaml",
    )
    assert [str(each) for each in found.tuples] == ["doc:1#viewer@user:ann", "doc:1#viewer@user:bob"]
    assert [each.place.line for each in found.tuples] == [6, 8]
    scenario = found.scenarios[0]
    assert (scenario.name, scenario.tuples) == ("shop", ())
    ann, bob, one, two = Who("user", "ann"), Who("user", "bob"), Thing("doc", "1"), Thing("doc", "2")
    assert scenario.expectations == (
        ExpectedCheck(ann, "viewer", one, True),
        ExpectedCheck(Who("user", "eve"), "viewer", one, False, (("hour", 3),)),
        ExpectedCheck(ann, "viewer", two, False),
        ExpectedCheck(Who("user", "cat"), "viewer", one, False),
        SubjectList(one, "viewer", "user", None, (ann, bob)),
        ExpectedCheck(ann, "viewer", two, False),
        ExpectedCheck(bob, "viewer", two, False),
    )
    assert [each.place.line for each in scenario.expectations] == [11, 13, 15, 20, 17, 22, 22]


def test_relationships_that_yaml_joins_are_one_line(problems):
    """As they are there, where this file is not accepted."""
    said = problems(
        "schema: 'definition d { relation a: d }'\nrelationships: >-\n  d:1#a@d:2\n  d:1#a@d:3\n", name="x.yaml"
    )
    (fault,) = said
    assert fault.startswith("x.yaml (relationships):1:1: `d:1#a@d:2 d:1#a@d:3` is not a relationship")


def test_a_schema_in_a_file_of_its_own(read, tmp_path):
    (tmp_path / "own.zed").write_text("definition user {}")
    assert [each.name for each in read("schemaFile: ./own.zed", name="x.yml").model.types] == ["user"]


def test_a_folded_schema_means_what_yaml_makes_of_it(read):
    """Here the comment goes on over the end of its line, and swallows a definition."""
    found = read("schema: >-\n  // gone\n  definition gone {}\n\n  definition user {}\n", name="x.yaml")
    assert [each.name for each in found.model.types] == ["user"]


def test_tests_may_stand_in_a_file_of_their_own(read):
    found = read(SCHEMA, "assertions: {assertTrue: ['group:eng#member@user:ann']}")
    assert found.scenarios[0].expectations == (
        ExpectedCheck(Who("user", "ann"), "member", Thing("group", "eng"), True),
    )


# ---- what is wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("definition user {", "1:18: expected `relation`, `permission` or `}`, found the end"),
        ("definition user {} }", "1:20: expected `definition`, `partial`, `caveat`, `import` or `use`, found `}`"),
        ("definition d { relation a user }", "1:27: expected `:`, found `user`"),
        ("definition d { relation a: d:b }", "1:30: expected `*`, found `b`"),
        ("definition d { permission a = }", "1:31: expected a name or `(`, found `}`"),
        ("definition d { permission a = b.some(c) }", "1:33: unknown function `some`; use `any` or `all`"),
        (
            "definition d { permission a = b->c->d }",
            "1:35: arrows cannot be chained; declare a permission on the type in between, and use that",
        ),
        (
            "use expiration definition d { relation a: d with expiration and c }",
            "1:61: the caveat comes first: `with caveat and expiration`",
        ),
        ("use magic", "1:5: unknown feature `use magic`; use one of expiration, import, partial, self, "
         "typechecking"),
        ("definition d {}\nuse self", "2:1: `use self` must precede all definitions; move it to the top"),
        ("/* definition", "1:1: unterminated comment; close it with `*/`"),
        ("caveat c(a string) { a == 'b }", "1:27: unterminated string; close it"),
        ("definition d { relation a: $ }", "1:28: `$` is not allowed here"),
        ("caveat c(a int) { }", "1:19: expected `{` or a condition, found `}`"),
        ("caveat c(a int) { a < }", "1:22: the condition of `c`: expected a value, found the end"),
        (
            "caveat c(a int) { {'a': 1}.a == a } }",
            "1:37: expected `definition`, `partial`, `caveat`, `import` or `use`, found `}`",
        ),
        ("caveat c() { true }", "1:10: expected a name, found `)`"),
        ("definition d { permission a = " + "b - (" * 300 + "b" + ")" * 300 + " }",
         "1:521: nested too deeply; split it"),
        ("caveat c(a bool) { " + "!" * 300 + "a }", "1:121: the condition of `c`: nested too deeply; split it"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_schema_that_is_none(problems, schema, said):
    assert problems(schema) == [f"schema.zed:{said}"]


def test_all_names_that_are_not_there_are_told_at_once(problems):
    assert problems("""
definition user {}
definition user {}
caveat c(a int, a int) { a == 1 }
definition doc {
  ...nothing
  relation parent: folder | usr
  relation viewer: user with d | user#friend | user:*
  relation viewer: user
  permission view = viewr + viewer->x + view->y + owner->z
}
""") == [
        "schema.zed:3:1: duplicate definition, partial or caveat `user`, at schema.zed:2:1; rename one of them",
        "schema.zed:4:10: `c` has two parameters `a`; rename one",
        "schema.zed:4:17: `c` has two parameters `a`; rename one",
        "schema.zed:6:3: partial `nothing` does not exist",
        "schema.zed:7:20: unknown definition `folder`",
        "schema.zed:7:29: unknown definition `usr`; did you mean `user`?",
        "schema.zed:8:20: unknown caveat `d`",
        "schema.zed:8:34: `user` has no `friend`",
        "schema.zed:9:3: `doc` has another `viewer`, at schema.zed:8:3; rename one of them",
        "schema.zed:10:21: `doc` has no `viewr`; did you mean `viewer`?",
        "schema.zed:10:41: an arrow requires a relation with tuples, and `view` has none",
        "schema.zed:10:51: `doc` has no `owner`",
    ]


def test_no_arrow_leads_to_everybody(problems):
    assert problems("definition user {}\ndefinition d { relation a: user:*\n permission b = a->c }") == [
        "schema.zed:3:17: an arrow cannot follow `a`, which allows `user:*`"
    ]


def test_partials_in_a_circle(problems):
    assert problems("partial a { ...b }\npartial b { ...a }\ndefinition d { ...a }") == [
        "schema.zed:2:13: partial `a` is included already; remove this"
    ]


def test_partials_that_include_each_other_twice(problems):
    """Each level doubles what the one below has."""
    partials = "\n".join(f"partial p{each} {{ ...p{each + 1} ...p{each + 1} }}" for each in range(40))
    said = problems(f"{partials}\npartial p40 {{}}\ndefinition d {{ ...p0 }}")
    assert said[0] == "schema.zed:1:20: partial `p1` is included already; remove this"
    assert len(said) == 40


@pytest.mark.parametrize("path", ["../other.zed", "/etc/hosts", "."])
def test_imports_stay_in_their_folder(problems, path):
    said = problems(f'use import\nimport "{path}"')
    assert said in (
        [f"schema.zed:2:1: `{path}` is not a file below the folder of this one; move it there"],
        [f"schema.zed:2:1: cannot read `{path}`: it is a folder"],
    )


def test_relationships_that_are_none(problems):
    assert problems(SCHEMA, 'doc:1#viewer\ndoc:1#viewer@user:a[at:{"x"}]\ndoc:1#viewer@user:a[expiration:soon]') == [
        "other0.txt:1:1: `doc:1#viewer` is not a relationship such as `document:plan#viewer@user:ann`",
        "other0.txt:2:1: `{\"x\"}` is not valid JSON: Expecting ':' delimiter: line 1 column 5 (char 4)",
        "other0.txt:3:1: `soon` is not a time such as `2030-01-01T00:00:00Z`",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", ":2:1: invalid YAML: did not find expected node content"),
        ("- a", ": expected a validation file: a mapping"),
        ("relationships: ''", ": this file has no `schema`; name the file with the schema first"),
        ("schema: ''\nassert: {}", ":2:1: `assert` is not supported; use one of assertions, "
         "relationships, schema, schemaFile, validation"),
        ("schema: ''\nvalidation_tuples: []", ":2:1: `validation_tuples` is not supported; use one of "
         "assertions, relationships, schema, schemaFile, validation"),
        ("schema: ''\nassertions: []", ":2:13: `assertions` must be a mapping"),
        ("schema: ''\nassertions: {assertMaybe: []}", ":2:14: `assertMaybe` is not supported; use one of "
         "assertCaveated, assertFalse, assertTrue"),
        ("schema: ''\nassertions: {assertTrue: a}", ":2:26: `assertTrue` must be a list"),
        ("schema: ''\nassertions: {assertTrue: [a]}", ":2:27: `a` is not a relationship such as "
         "`document:plan#viewer@user:ann`"),
        ("schema: ''\nvalidation: {a: []}", ":2:14: `a` is not a permission of a resource, such as "
         "`document:plan#view`"),
        ("schema: ''\nvalidation: {'doc:1#view': [ann]}", ":2:29: `ann` has no subject; write expected subjects in "
         "brackets: `[user:ann]`"),
        ("schema: ''\nschemaFile: a.zed", ":2:13: `schema` and `schemaFile` cannot both be given; remove one"),
        ("schema: |\n  definition user {\n", ":2:20: expected `relation`, `permission` or `}`, found the end"),
    ],
)  # fmt: skip
def test_validation_files_that_are_none(problems, text, said):
    assert problems(text, name="x.yaml") == [f"x.yaml{said}"]


def test_files_that_are_no_text(problems, tmp_path):
    (tmp_path / "bad.zed").write_bytes(b"\xff")
    assert problems('import "bad.zed"') == [
        f"schema.zed:1:1: `{tmp_path}/bad.zed` is not UTF-8 text (byte 0)".replace(f"{tmp_path}/", "")
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schema: ''\nschema: ''\n", "other.yaml:2:1: invalid YAML: duplicate `schema`"),
        ("schema: ''\nassertions: {assertTrue: [], assertTrue: []}", "duplicate `assertTrue`"),
        ("schema: &a ''\nrelationships: *a\n", "other.yaml:1:9: invalid YAML: anchors and aliases"),
    ],
)
def test_yaml_says_each_thing_once(problems, text, said):
    assert said in problems(text, name="other.yaml")[0]


def test_a_context_says_each_value_once():
    with pytest.raises(ImportRejected, match="duplicate `a`"):
        context_of('{"a": 1, "a": 2}', NOWHERE)
