"""Lines of facts, written and read: whatever a fact is made of, it is the same fact again."""

import csv
import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from facts.wire import READERS, WRITERS, BadLine, Fact, fact_from_json, line_of, read_notation
from policy.errors import MalformedRequest
from policy.values import Value, canonical_id
from tests.facts.test_walk import HOSTILE

END = 1_900_000_000_000_001
TEXT = st.text(st.sampled_from('ab1_:(){}"\\ %#,;-.éß☃😀\n\r\t\u2028\x85\x1f'), min_size=1, max_size=12)
NAMES = st.one_of(TEXT, st.sampled_from(["p", "User", "String", "Integer", "Boolean", "A::B", "until"]))


def again(form: str, facts: list[Fact]) -> list[object]:
    written = io.StringIO()
    assert WRITERS[form](written, iter(facts)) == len(facts)
    read = [line for _, line in READERS[form](io.BytesIO(written.getvalue().encode()))]
    return [each if isinstance(each, (Fact, BadLine)) else fact_from_json(each, "") for each in read]


@pytest.mark.parametrize("form", sorted(WRITERS))
def test_hostile_ids_come_back(form):
    hostile = [
        *HOSTILE,
        "a) until b",
        "_",
        "true",
        "7",
        "x" * 512,
        '\\"',
        "{",
        "#",
        "\r",
        "\r\n",
        "\u2028",
        "\x85",
        "\u202e",
        "\U000e0001",
    ]
    facts = [Fact("p", (Value("User", text), Value("String", text)), END) for text in hostile]
    found = again(form, facts)
    assert found == facts and [each.expires_at for each in found] == [END] * len(facts)


@pytest.mark.parametrize("end", [None, END])
@pytest.mark.parametrize("names", ["type id", "Type id", "type x", "type id type id", "type id type x"])
def test_a_fact_of_a_predicate_called_predicate_comes_back_from_csv(names, end):
    words = names.split()
    first = Fact("predicate", tuple(map(Value, words[::2], words[1::2])), end)
    assert again("csv", [first]) == [first]
    assert again("csv", [first, first]) == [first, first]


@pytest.mark.parametrize("form", sorted(WRITERS))
def test_a_predicate_that_begins_like_a_file_of_utf_8_comes_back(form):
    facts = [Fact("\ufeffp", (Value("User", "\ufeffann"),)), Fact("p", (Value("User", "ann"),))]
    assert again(form, facts) == facts


@pytest.mark.parametrize("names", ["predicate,type,id", "predicate,type,id,type,id", "predicate,type,id,expires_at"])
def test_a_first_line_of_csv_names_the_columns(names):
    read = [line for _, line in READERS["csv"](io.BytesIO(f"{names}\np,T,x\n{names}\n".encode()))]
    assert read[0] == {"predicate": "p", "args": [{"type": "T", "id": "x"}]} and len(read) == 2


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(NAMES, st.lists(st.tuples(NAMES, TEXT), min_size=1, max_size=5), st.sampled_from([None, END])))
)
def test_any_fact_comes_back_from_the_notation(drawn):
    facts = []
    for predicate, args, end in drawn:
        try:
            values = tuple(Value(name, canonical_id(name, text)) for name, text in args)
            fact = Fact(predicate, values, end)
            fact_from_json({"predicate": predicate, "args": [json_of(each) for each in values]}, "")
            facts.append(fact)
        except (ValueError, MalformedRequest):
            continue  # no fact at all
    found = again("notation", facts)
    assert found == facts and [each.expires_at for each in found] == [each.expires_at for each in facts]


def json_of(value: Value) -> dict[str, str]:
    return {"type": value.type, "id": value.id}


@pytest.mark.parametrize(
    ("fact", "line"),
    [
        (Fact("p", (Value("User", "ann"), Value("String", "admin"), Value("Integer", "-7"), Value("Boolean", "true"))),
         'p(User:ann, "admin", -7, true)'),
        (Fact("p", (Value("User", "a b"),), 1_900_000_000_000_000), 'p(User:"a b") until 2030-03-17T17:46:40Z'),
        (Fact("p", (Value("User", "_"),)), 'p(User:"_")'),
        (Fact("p", (Value("User", "a\u202eb\x9b\U000e0001"),)), r'p(User:"a\u202eb\u009b\udb40\udc01")'),
        (Fact("a b", (Value("User", "x"),)), '{"predicate":"a b","args":[{"type":"User","id":"x"}]}'),
    ],
)  # fmt: skip
def test_facts_are_written_as_people_write_them(fact, line):
    assert line_of(fact) == line


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("p(", "expected an argument at the end"),
        ("p(User:_)", "wildcards are not allowed in a fact"),
        ("p(User:a) until tomorrow", "must be an RFC 3339 time with an offset"),
        ("p(User:a); until 2030-01-01T00:00:00Z", "unexpected text `; until 2030-01-01T0` after the fact"),
        ("p(User:a); p(User:b);", "unexpected text `; p(User:b);` after the fact"),
        ("p(User:a) p(User:b)", "unexpected text"),
        ('{"predicate": 1', "invalid JSON"),
        ("p(User:*)", "must not be `*`"),
        ("just words", "expected `(` before"),
        (r'p(User:"\q")', "expected a quoted id with JSON's escapes"),
        ("p(User:" + "x" * 4000 + ")", "must be at most 512 bytes of UTF-8"),
    ],
)
def test_a_line_that_is_wrong_says_why(line, said):
    ((number, bad),) = read_notation(io.BytesIO(f"\n# nothing\n{line}\n".encode()))
    assert number == 3 and isinstance(bad, BadLine) and said in bad.reason


def test_lines_that_say_nothing_and_bytes_that_are_no_text():
    lines = list(read_notation(io.BytesIO(b"\xef\xbb\xbfp(User:a);\r\n\r\n  # x\n\tp(User:\xff)")))
    assert lines[0] == (1, Fact("p", (Value("User", "a"),)))
    assert len(lines) == 2 and "not valid UTF-8" in lines[1][1].reason


# ---- formulas ----------------------------------------------------------------------------------------------------

FORMULAS = ["=1+1", "+1+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1"]


@pytest.mark.parametrize("quotes", ["", "'", "''"])
@pytest.mark.parametrize("text", [*FORMULAS, "ann", "x'", "=", "'", "a'=1", " =1"])
def test_a_spreadsheet_gets_no_formula_and_reading_gives_the_same_ids(text, quotes):
    id = quotes + text
    facts = [Fact("p", (Value("User", id), Value("Integer", "-5"))), Fact("p", (Value("T", "x"), Value("String", id)))]
    written = io.StringIO()
    WRITERS["csv"](written, iter(facts))
    cells = [cell for row in csv.reader(io.StringIO(written.getvalue(), newline="")) for cell in row]
    assert [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d"))] == []
    assert again("csv", facts) == facts


def test_other_files_keep_their_signs_and_quotes():
    read = [line for _, line in READERS["csv"](io.BytesIO(b"p,T,=1\np,T,'ann\np,Integer,-5\n"))]
    assert [line["args"][0]["id"] for line in read] == ["=1", "'ann", "-5"]
