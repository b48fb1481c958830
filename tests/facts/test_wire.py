"""What JSON may say, and where it is told to be wrong."""

import pytest

from facts import wire
from facts.wire import Argument, Fact, FactPattern, batch_from_json, fact_from_text, pattern_from_text
from policy.errors import MalformedRequest
from policy.values import Value


def fact(*args: object, predicate: object = "p") -> dict:
    return {"predicate": predicate, "args": list(args)}


def value(id: object = "x", type: object = "T") -> dict:
    return {"type": type, "id": id}


def test_a_fact_is_decoded():
    decoded = tuple(batch_from_json([fact(value("ann", "User"), value("admin", "String"))], "inserts"))
    assert decoded == (Fact("p", (Value("User", "ann"), Value("String", "admin"))),)
    assert wire.fact_to_json(decoded[0]) == fact(value("ann", "User"), value("admin", "String"))


@pytest.mark.parametrize(
    ("type_name", "sent", "kept"),
    [
        ("Integer", "+5", "5"),
        ("Integer", "007", "7"),
        ("Integer", "-0", "0"),
        ("Boolean", "true", "true"),
        ("T", "007", "007"),
    ],
)
def test_primitives_have_one_spelling(type_name, sent, kept):
    assert wire.value_from_json(value(sent, type_name), "v") == Value(type_name, kept)


@pytest.mark.parametrize("name", ["x" * 200, "é" * 100])
def test_names_may_have_200_bytes(name):
    assert wire.name_from_json(name, "predicate") == name
    with pytest.raises(MalformedRequest, match="200 bytes"):
        wire.name_from_json(f"{name}x", "predicate")


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (fact(value("")), ".args[0].id"),
        (fact(value("*")), ".args[0].id"),
        (fact(value("x"), value("*", "String")), ".args[1].id"),
        (fact(value(5)), ".args[0].id"),
        (fact(value(None)), ".args[0].id"),
        (fact(value("a\0b")), ".args[0].id"),
        (fact(value("a\ud800b")), ".args[0].id"),
        (fact(value("x" * 513)), ".args[0].id"),
        (fact(value("é" * 257)), ".args[0].id"),
        (fact(value("1.5", "Integer")), ".args[0].id"),
        (fact(value("9223372036854775808", "Integer")), ".args[0].id"),
        (fact(value("True", "Boolean")), ".args[0].id"),
        (fact(value(type="")), ".args[0].type"),
        (fact(value(type=None)), ".args[0].type"),
        (fact(value(type="a\nb")), ".args[0].type"),
        (fact(value(type="x" * 201)), ".args[0].type"),
        (fact(None), ".args[0]"),
        (fact("User:ann"), ".args[0]"),
        (fact(), ".args"),
        (fact(*[value()] * 6), ".args"),
        ({"predicate": "p"}, ".args"),
        ({"predicate": "p", "args": {}}, ".args"),
        (fact(value(), predicate=""), ".predicate"),
        (fact(value(), predicate=None), ".predicate"),
        (fact(value(), predicate=["p"]), ".predicate"),
        ([], ""),
        (None, ""),
    ],
)
def test_a_wrong_fact_is_refused_with_its_place(body, place):
    with pytest.raises(MalformedRequest) as refused:
        batch_from_json([fact(value()), body], "[3].inserts")
    assert refused.value.path == f"[3].inserts[1]{place}"
    assert refused.value.message.startswith(f"[3].inserts[1]{place}: ")


@pytest.mark.parametrize("length", [511, 512])
def test_ids_up_to_the_limit_are_taken(length):
    assert wire.value_from_json(value("x" * length), "v").id == "x" * length
    assert wire.value_from_json(value("é" * (length // 2)), "v")


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        (None, Argument()),
        ({}, Argument()),
        (value(None, None), Argument()),
        ({"type": "T"}, Argument("T")),
        (value(None), Argument("T")),
        (value("x"), Argument("T", "x")),
        (value("007", "Integer"), Argument("Integer", "7")),
        (value("", "T"), Argument("T", "")),
        (value("*", "T"), Argument("T", "*")),
    ],
)
def test_patterns_know_three_kinds_of_argument(sent, meant):
    assert wire.pattern_from_json(fact(sent), "") == FactPattern("p", (meant,))


@pytest.mark.parametrize(
    "sent", [{"id": "x"}, {"type": "T", "ID": "x"}, {"Type": "T"}, value(5), value(type=5), "x", [], value("x\0")]
)
def test_other_arguments_of_patterns_are_refused(sent):
    with pytest.raises(MalformedRequest):
        wire.pattern_from_json(fact(sent), "")


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ('has_role(User:ann, "admin", Repo:acme)', 'has_role(User{"ann"}, "admin", Repo{"acme"})'),
        ('p(User{"a b"}, 7, true, word, T:"x,y)");', 'p(User{"a b"}, 7, true, "word", T{"x,y)"})'),
        ('p(a::User:ann, a::User{"x"}, "_")', 'p(a::User{"ann"}, a::User{"x"}, "_")'),
        ("p(Host:::1, Host::1, Host : a)", 'p(Host{"::1"}, Host{":1"}, Host{"a"})'),
    ],
)
def test_facts_are_read_as_people_write_them(text, printed):
    assert str(fact_from_text(text)) == printed
    assert str(fact_from_text(printed)) == printed


def test_patterns_are_read_as_people_write_them():
    assert pattern_from_text("p(User:_, _, Repo:a)") == FactPattern(
        "p", (Argument("User"), Argument(), Argument("Repo", "a"))
    )


@pytest.mark.parametrize("text", ["", "p", "p(", "p()", "p(a", "p(a,)", "p(a) q", "p(_)", 'p("a)', "p(T:)", "p(T{a})"])
def test_other_text_is_refused(text):
    with pytest.raises(MalformedRequest):
        fact_from_text(text)
