"""OpenFGA's files: what each way of writing says, and where a wrong one is wrong."""

import json
import re
from textwrap import dedent

import pytest

from authz_project.importers.ir import (
    Arrow,
    Computed,
    Constant,
    Direct,
    Exclusion,
    ExpectedCheck,
    ImportRejected,
    Intersection,
    Subject,
    Union,
    Who,
)
from authz_project.importers.openfga import model_of_files, read_dsl, read_files, read_tuples

HEADER = "model\n  schema 1.1\ntype user\n"


def relation(definition: str, *others: str):
    lines = "\n".join(f"    define {each}" for each in ("a: [user]", "b: [user]", "parent: [doc]", *others))
    model = model_of_files([read_dsl(f"{HEADER}type doc\n  relations\n{lines}\n    define x: {definition}\n", "m")])
    return next(each for each in model.types[1].relations if each.name == "x")


@pytest.mark.parametrize(
    ("definition", "expression"),
    [
        ("[user]", Direct()),
        ("a", Computed("a")),
        ("a from parent", Arrow("parent", "a")),
        ("[user] or a or b", Union((Direct(), Computed("a"), Computed("b")))),
        ("a and b", Intersection((Computed("a"), Computed("b")))),
        ("a but not b", Exclusion(Computed("a"), Computed("b"))),
        ("(a or b) but not (a and b)", Exclusion(Union((Computed("a"), Computed("b"))),
                                                 Intersection((Computed("a"), Computed("b"))))),
    ],
)  # fmt: skip
def test_expressions(definition, expression):
    assert relation(definition).expression == expression


def test_kinds_of_subjects():
    found = relation("[user, user:*, doc#a,\n      doc#b]")
    assert found.subjects == (Subject("user"), Subject("user", wildcard=True), Subject("doc", "a"), Subject("doc", "b"))


def test_words_of_the_language_can_be_names():
    relations = "  define define: [type]\n  define relations: define from define\n"
    text = f"model\n schema 1.1\ntype type\n relations\n{relations}"
    (found,) = model_of_files([read_dsl(text, "m")]).types
    assert [each.name for each in found.relations] == ["define", "relations"]


def test_comments_stay_with_what_they_are_about():
    relations = "    # one\n    # two\n    define x: [user] # three\n"
    text = f"# all\n{HEADER}# a type\ntype doc # really\n  relations\n{relations}"
    model = model_of_files([read_dsl(text, "m")])
    doc = model.types[1]
    assert (model.comment, doc.comment, doc.relations[0].comment) == (
        ("all",), ("a type", "really"), ("one", "two", "three")
    )  # fmt: skip


def test_comments_inside_of_conditions_are_comments():
    """The language takes them off each line before it looks at an expression, whatever stands in them."""
    condition = """# before
condition c(x: int, s: string) { # don't }
  # "neither
  x > 5 && // {more #
  s != " # a text"
  && s != "y" # that's } all
} # after
condition d(x: int) { x < }"""
    with pytest.raises(ImportRejected) as refused:
        model_of_files([read_dsl(f"{HEADER}{condition}", "m")])
    assert [str(each.place) for each in refused.value.faults] == ["m:11:26"]
    (found,) = model_of_files([read_dsl(f"{HEADER}{condition.rsplit(chr(10), 1)[0]}", "m")]).conditions
    assert found.comment == ("before", "don't }", '"neither', "that's } all", "after")
    assert found.text.endswith('x > 5 && // {more # s != " # a text" && s != "y" }')


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("type user", "1:1", "expected `model` or `module`"),
        ("model\n  schema 1.0", "2:10", "schema 1.0 is not supported"),
        (f"{HEADER}type doc\n  relations\n    define x [user]", "6:14", "expected `:`"),
        (f"{HEADER}type doc\n  relations\n    define x: [user] or", "6:24", "found the end"),
        (f"{HEADER}type doc\n  relations\n    define x: [user] and x or x", "6:28", "add parentheses"),
        (f"{HEADER}type doc\n  relations\n    define x: [user] but x", "6:26", "expected `not`"),
        (f"{HEADER}type doc\n  relations\n    define x: [user", "6:20", "expected `with`, `:`, `,`, `]` or `#`"),
        (f"{HEADER}type doc\n  relations\n    define x: [usr]", "6:16", "unknown type `usr`; did you mean `user`?"),
        (f"{HEADER}type doc\n  relations\n    define x: [user#y]", "6:16", "`user` has no `y`"),
        (f"{HEADER}type doc\n  relations\n    define x: y", "6:15", "`doc` has no `y`"),
        (f"{HEADER}type doc\n  relations\n    define x: y from z", "6:15", "`doc` has no `z`"),
        (f"{HEADER}type doc\n  relations\n    define x: [user with c]", "6:16", "unknown condition `c`"),
        (f"{HEADER}type user", "4:6", "duplicate type `user`, at model.fga:3:6; rename"),
        (f"{HEADER}type doc\n  relations\n    define p: [user]\n    define x: y from p", "7:15",
         "no type of `p` has a relation `y`"),
        (f"{HEADER}condition c(x: int) {{\n  x <\n}}", "5:6", "expected a value"),
        (f"{HEADER}condition c(x: int) {{ x < 1", "4:28", "`}` or an expression, found the end"),
        (f"{HEADER}type doc\n  relations\n    define x: [user]; y", "6:21", "`;` is not allowed here"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(text, place, message):
    with pytest.raises(ImportRejected) as refused:
        model_of_files([read_dsl(text, "model.fga")])
    fault = str(refused.value.faults[0])
    assert fault.startswith(f"model.fga:{place}:"), fault
    assert message in fault


def test_all_that_is_wrong_is_named():
    with pytest.raises(ImportRejected) as refused:
        model_of_files([read_dsl(f"{HEADER}type doc\n  relations\n    define x: [usr, usr2] or y\n", "m")])
    assert len(refused.value.faults) == 3


# ---- other ways to write a model -------------------------------------------------------------------------------------

DSL = dedent("""
    model
      schema 1.1
    type user
    type group
      relations
        define member: [user, user:*, group#member]
    type doc
      relations
        define parent: [doc]
        define owner: [user with small]
        define x: ([user] or owner) but not owner from parent
        define y: x and owner
    condition small(size: int, names: list<string>) {
      size < 10 && "a" in names
    }
""")
JSON = {
    "schema_version": "1.1",
    "type_definitions": [
        {"type": "user", "relations": {}},
        {
            "type": "group",
            "relations": {"member": {"this": {}}},
            "metadata": {"relations": {"member": {"directly_related_user_types": [
                {"type": "user"}, {"type": "user", "wildcard": {}}, {"type": "group", "relation": "member"},
            ]}}},
        },
        {
            "type": "doc",
            "relations": {
                "parent": {"this": {}},
                "owner": {"this": {}},
                "x": {"difference": {
                    "base": {"union": {"child": [{"this": {}}, {"computedUserset": {"relation": "owner"}}]}},
                    "subtract": {"tupleToUserset": {
                        "tupleset": {"relation": "parent"}, "computedUserset": {"relation": "owner"},
                    }},
                }},
                "y": {"intersection": {"child": [
                    {"computedUserset": {"relation": "x"}}, {"computedUserset": {"relation": "owner"}},
                ]}},
            },
            "metadata": {"relations": {
                "parent": {"directly_related_user_types": [{"type": "doc"}]},
                "owner": {"directly_related_user_types": [{"type": "user", "condition": "small"}]},
                "x": {"directly_related_user_types": [{"type": "user"}]},
            }},
        },
    ],
    "conditions": {"small": {
        "name": "small",
        "expression": 'size < 10 && "a" in names',
        "parameters": {
            "size": {"type_name": "TYPE_NAME_INT"},
            "names": {"type_name": "TYPE_NAME_LIST", "generic_types": [{"type_name": "TYPE_NAME_STRING"}]},
        },
    }},
}  # fmt: skip


def test_json_says_the_same(tmp_path):
    (tmp_path / "model.json").write_text(json.dumps(JSON, indent="\t"))
    assert read_files(str(tmp_path / "model.json"), []).model == model_of_files([read_dsl(DSL, "m")])


def test_json_that_is_wrong_is_named_with_its_line(tmp_path):
    text = json.dumps(JSON, indent=1).replace('"computedUserset"', '"computed"', 1)
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ImportRejected, match=r"model\.json:\d+:\d+: `computed` is unknown or has the wrong type"):
        read_files(str(tmp_path / "model.json"), [])


def test_modules_are_one_model(tmp_path):
    (tmp_path / "fga.mod").write_text("schema: '1.2'\ncontents:\n  - core.fga\n  - wiki/pages.fga\n")
    (tmp_path / "wiki").mkdir()
    (tmp_path / "core.fga").write_text("module core\ntype user\ntype space\n  relations\n    define member: [user]\n")
    (tmp_path / "wiki/pages.fga").write_text(
        "module wiki\nextend type space\n  relations\n    define edit: member\ntype page\n"
    )
    model = read_files(str(tmp_path / "fga.mod"), []).model
    assert [type_.name for type_ in model.types] == ["user", "space", "page"]
    assert [each.name for each in model.types[1].relations] == ["member", "edit"]
    (tmp_path / "core.fga").write_text("module core\ntype user\n")
    with pytest.raises(ImportRejected, match=r"wiki/pages\.fga:2:13: type space does not exist"):
        read_files(str(tmp_path / "fga.mod"), [])


# ---- tuples ----------------------------------------------------------------------------------------------------------

TUPLE = {"user": "group:eng#member", "relation": "viewer", "object": "doc:a:b"}
WITH = {**TUPLE, "condition": {"name": "c", "context": {"x": 1}}}
CSV = (
    "user_type,user_id,user_relation,relation,object_type,object_id,condition_name,condition_context\n"
    'group,eng,member,viewer,doc,a:b,c,"{""x"": 1}"\n'
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.json", json.dumps([WITH])),
        ("t.json", json.dumps({"tuples": [{"key": WITH, "timestamp": "2026-01-01T00:00:00Z"}]})),
        ("t.json", json.dumps({"writes": {"tuple_keys": [WITH]}})),
        ("t.jsonl", json.dumps(WITH) + "\n"),
        ("t.yaml", "- " + json.dumps(WITH)),
        ("t.csv", CSV),
        ("t.csv", "\ufeff" + CSV),
    ],
)
def test_tuples(name, text):
    (found,) = read_tuples(text, name)
    assert (str(found), found.condition, found.values) == ("doc:a:b#viewer@group:eng#member", "c", (("x", 1),))
    assert found.place.line in (1, 2)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.json", '[\n{"user": "user:a", "relation": "x"}]', "t.json:2:1: a tuple requires `object`"),
        ("t.json", '[{"user": ]', "t.json:1:2: invalid JSON"),
        ("t.yaml", "- user: ann\n  relation: x\n  object: doc:1\n", "t.yaml:1:3: `ann` is not an object"),
        ("t.yaml", "a: [b\n", "t.yaml:2:1: invalid YAML"),
        ("t.csv", "user_type,user_id\nuser,ann\n", "t.csv:1: no relation and no object_type"),
        ("t.csv", CSV.replace("}", ""), "t.csv:2: the context is not valid JSON"),
    ],
)
def test_tuples_that_are_wrong(name, text, said):
    with pytest.raises(ImportRejected, match=re.escape(said)):
        list(read_tuples(text, name))


# ---- store files -----------------------------------------------------------------------------------------------------


def test_a_store_file_brings_its_model_tuples_and_tests(tmp_path):
    store = tmp_path / "store.fga.yaml"
    store.write_text(
        dedent("""
        model_file: model.fga
        tuple_file: tuples.csv
        tests:
          - name: one
            tuples: [{user: user:ann, relation: owner, object: doc:1}]
            check:
              - users: [user:ann, user:bob]
                objects: [doc:1, doc:2]
                assertions: {y: false}
    """)
    )
    (tmp_path / "model.fga").write_text(DSL)
    (tmp_path / "tuples.csv").write_text(CSV)
    found = read_files(str(store), [])
    assert len(found.tuples) == 1
    (scenario,) = found.scenarios
    assert len(scenario.expectations) == 4
    assert isinstance(scenario.expectations[0], ExpectedCheck)
    assert scenario.expectations[0].subject == Who("user", "ann")


def test_places_in_a_store_are_those_of_the_file(tmp_path):
    store = tmp_path / "store.fga.yaml"
    model = "    model\n      schema 1.1\n    type doc\n      relations\n        define x: y\n"
    store.write_text(f"name: x\nmodel: |\n{model}")
    with pytest.raises(ImportRejected, match=r"store\.fga\.yaml:7:19: `doc` has no `y`"):
        read_files(str(store), [])


def test_what_a_store_file_has_besides_is_not_passed_over(tmp_path):
    store = tmp_path / "store.fga.yaml"
    store.write_text(f"model: {json.dumps(DSL)}\ntests:\n  - name: x\n    chek: []\n")
    with pytest.raises(ImportRejected, match=r":4:5: `chek` is not supported"):
        read_files(str(store), [])


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ({"intersection": {"child": []}}, "expected `child`"),
        ({"intersection": {}}, "expected `child`"),
        ({"union": {"children": [{"this": {}}]}}, "`children` is not supported"),
        ({"this": {}, "intersection": {"child": [{"this": {}}]}}, "found this, intersection"),
        ({}, "found none"),
        ({"this": {"but": "not"}}, "`but` is not supported"),
        ({"difference": {"base": {"this": {}}}}, "expected a userset"),
        ({"difference": {"base": {"this": {}}, "subtract": {"this": {}}, "more": {}}}, "`more` is not supported"),
        ({"computedUserset": {"relation": "x", "object": "doc:1"}}, "`object` must be empty"),
    ],
)
def test_expressions_of_json_say_one_thing(tmp_path, expression, message):
    """All of nothing would be everybody."""
    model = {"schema_version": "1.1", "type_definitions": [{"type": "doc", "relations": {"x": expression}}]}
    (tmp_path / "model.json").write_text(json.dumps(model))
    with pytest.raises(ImportRejected, match=re.escape(message)):
        read_files(str(tmp_path / "model.json"), ())


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"type_definitions": [', '"type_definitions": 5, "id": [', "`type_definitions` must be a list"),
        ('"directly_related_user_types": [{"type": "doc"}]', '"directly_related_user_types": 5', "must be a list"),
        ('"relation": "member"', '"relation": 5', "`relation` must be a string"),
        ('"generic_types": [{"type_name": "TYPE_NAME_STRING"}]', '"generic_types": 5', "must be a list"),
        ('{"type": "user", "relations": {}}', '{"type": "", "relations": {}}', "a type requires `type`, a string"),
    ],
)
def test_json_of_another_shape_is_refused(tmp_path, before, after, said):
    text = json.dumps(JSON)
    assert before in text
    (tmp_path / "model.json").write_text(text.replace(before, after))
    with pytest.raises(ImportRejected, match=said):
        read_files(str(tmp_path / "model.json"), ())


@pytest.mark.parametrize(
    "text",
    ["tuple_files: 5", "tests: [{list_objects: [{user: user:a, type: doc, assertions: {x: 5}}]}]",
     "tests: [{list_users: [{object: doc:1, user_filter: [{type: user}], assertions: {x: {users: 5}}}]}]"],
)  # fmt: skip
def test_lists_of_a_store_are_lists(tmp_path, text):
    (tmp_path / "store.yaml").write_text(f"model: {json.dumps(DSL)}\n{text}\n")
    with pytest.raises(ImportRejected, match="must be a list"):
        read_files(str(tmp_path / "store.yaml"), ())


TUPLE = '"user": "user:a", "relation": "x", "object": "doc:1"'


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.csv", CSV.replace("condition_name", "conditon_name"), "no column is called `conditon_name`"),
        ("t.csv", CSV.replace("condition_context", "condition_name"), "duplicate column `condition_name`"),
        ("t.csv", "user_type,user_id,relation,object_type,object_id,condition_name\nuser,a,x,doc,1\n",
         "a row must have 6 cells"),
        ("t.csv", "user_type,user_id,relation,object_type,object_id\nuser,a,x,doc,1,c\n", "must have 5 cells"),
        ("t.json", f'[{{{TUPLE}, "conditon": {{"name": "c"}}}}]', "`conditon` is not supported"),
        ("t.json", f'[{{{TUPLE}, "condition": {{}}}}]', "a condition requires `name`"),
        ("t.json", f'[{{{TUPLE}, "condition": {{"name": "c", "contxt": {{}}}}}}]', "`contxt` is not supported"),
        ("t.json", f'[{{{TUPLE}, "user": "user:b"}}]', "duplicate `user`"),
        ("t.json", f'{{"writes": [], "deletes": [{{{TUPLE}}}]}}', "`deletes` is not supported"),
        ("t.json", '{"tuples": [], "continuation_token": "x"}', "tuples are missing"),
        ("t.json", '{"tuples": [], "writes": []}', "under one of"),
        ("t.json", f"[{{{TUPLE}}}", "the list is not closed"),
        ("t.json", f"[] [{{{TUPLE}}}]", "unexpected text after"),
        ("t.yaml", f"- {{{TUPLE}, conditon: c}}", "`conditon` is not supported"),
        ("t.yaml", "writes: []\ndeletes: [a]\n", "`deletes` is not supported"),
        ("t.yaml", "tuples: []\ntuples: []\n", "t.yaml:2:1: invalid YAML: duplicate `tuples`"),
        ("t.yaml", "- &a b\n- *a\n", "t.yaml:1:3: invalid YAML: anchors and aliases"),
        ("t.yaml", "[" * 2000, "invalid YAML: exceeded maximum nesting depth"),
    ],
)  # fmt: skip
def test_nothing_of_a_tuple_is_left_out_in_silence(name, text, said):
    with pytest.raises(ImportRejected, match=re.escape(said)):
        list(read_tuples(text, name))


@pytest.mark.parametrize(
    ("written", "value"),
    [("yes", "yes"), ("Off", "Off"), ("12:30", "12:30"), ("2026-01-31", "2026-01-31"), ("true", True), ("1.5", 1.5),
     ("0x1f", 31), ("'5'", "5"), ("null", None)],
)  # fmt: skip
def test_values_are_read_as_openfga_reads_them(written, value):
    """A text meets no condition that asks for a truth value or a number."""
    text = f"- {{user: 'user:a', relation: x, object: 'doc:1', condition: {{name: c, context: {{x: {written}}}}}}}"
    (found,) = read_tuples(text, "t.yaml")
    assert found.values == (("x", value),)


@pytest.mark.parametrize("written", ["!!bool foo", "!!timestamp foo", "!x 5", "!!python/name:os.system ''"])
def test_yaml_has_no_tags(written):
    with pytest.raises(ImportRejected, match=r"t\.yaml:1:\d+: invalid YAML: tags"):
        list(read_tuples(f"- {written}", "t.yaml"))


@pytest.mark.parametrize(
    ("written", "value"), [("\N{GRINNING FACE}", "\N{GRINNING FACE}"), ("\\\\ud83d\\\\ude00", "\\ud83d\\ude00")]
)
def test_characters_in_two_halves_are_read_as_one(tmp_path, written, value):
    text = json.dumps(JSON).replace('\\"a\\" in names', json.dumps(f'"{written}" in names')[1:-1])
    (tmp_path / "model.json").write_text(text)
    (condition,) = read_files(str(tmp_path / "model.json"), []).model.conditions
    assert condition.test.parts[1].item == Constant(value)


def test_keys_are_read_as_they_are_written():
    text = "- {user: 'user:a', relation: x, object: 'doc:1', condition: {name: c, context: {no: 1, on: 2, 1.10: 3}}}"
    (found,) = read_tuples(text, "t.yaml")
    assert found.values == (("no", 1), ("on", 2), ("1.10", 3))
