"""What texts mean, and what is said about those that mean nothing."""

import subprocess
import sys
import threading
import time
from itertools import product
from pathlib import Path

import pytest

from policy.language import ast, parse, parser
from policy.language.parser import CONTEXTUAL, RESERVED
from policy.language.source import NOWHERE, PolicyRejected, Source
from tests.policy.conftest import cases
from tests.policy.trees import nodes, print_policy, tree
from tests.sampling import some, together
from tests.yardstick import seconds_at_most


def text_of(path) -> str:
    return path.read_bytes().decode()


def rejection(text: str) -> PolicyRejected:
    with pytest.raises(PolicyRejected) as caught:
        parse(Source(text))
    return caught.value


def body(text: str) -> ast.Formula:
    return parse(Source(f"p(x) if {text};")).items[0].body


# ---- golden files ---------------------------------------------------------------------------------


@together("case", cases("ast"))
def test_a_text_has_its_tree(case, golden):
    golden(case, tree(parse(Source(text_of(case), case.name))))


@together("case", cases("ast"))
def test_a_printed_tree_parses_to_itself(case):
    policy = parse(Source(text_of(case)))
    assert parse(Source(print_policy(policy))) == policy


@together("case", cases("ast"))
def test_every_node_says_where_it_stands(case):
    text = text_of(case)
    for node in nodes(parse(Source(text))):
        if isinstance(node, ast.Policy) or not hasattr(node, "span"):
            continue
        assert node.span != NOWHERE
        _check_place(node, text[node.span.start : node.span.end])


def _check_place(node, written: str) -> None:
    match node:
        case ast.Name(text=word) | ast.Variable(name=word):
            assert written == word
        case ast.Call() | ast.Head():
            assert written.startswith(node.predicate.text)
            assert written.endswith(")")
        case ast.Literal() | ast.String() | ast.Membership():
            assert written[-1] in '"}]' or written[-1].isalnum()
        case ast.Rule() | ast.Shorthand() | ast.Declare() | ast.Assertion() | ast.NeverAssertion() | ast.FixtureUse():
            assert written.endswith(";")
        case ast.Block() | ast.Test() | ast.Fixture():
            assert written.endswith("}")
        case ast.Not():
            assert written.startswith("not") or " not in " in written
    assert written == written.strip()


@together("case", cases("syntax_rejected"))
def test_a_text_is_refused_with_its_message(case, golden):
    with pytest.raises(PolicyRejected) as caught:
        parse(Source(text_of(case), case.name))
    golden(case, caught.value.message + "\n")


def test_messages_keep_their_style():
    """One sentence, lower case unless it starts with a name, no period; so does the hint."""
    for case in cases("syntax_rejected"):
        for problem in rejection(text_of(case)).problems:
            for sentence in (problem.message, problem.hint):
                assert not sentence.endswith("."), sentence
                assert "\n" not in sentence
                assert sentence[:1].islower() or sentence[:1] in "`?@" or sentence.split()[0] in ("Polar", "an"), (
                    sentence
                )
                assert not any(word in sentence for word in ("LPAREN", "RBRACE", "SEMI", "NAME", "Lex"))


# ---- the grammar ----------------------------------------------------------------------------------


def test_the_grammar_has_no_conflict():
    assert parser._parser.__wrapped__().action, "building it raises where PLY has a doubt"


def test_a_conflict_in_the_grammar_is_an_error(monkeypatch):
    ambiguous = (lambda p: None, "formula : formula AND formula")
    monkeypatch.setattr(parser, "PRODUCTIONS", (*parser.PRODUCTIONS, ambiguous))
    with pytest.raises(AssertionError, match="conflict"):
        parser._parser.__wrapped__()


@pytest.mark.long
def test_policies_compile_where_python_strips_docstrings(tmp_path):
    """PLY reads productions from docstrings."""
    policy = tmp_path / "main.polar"
    policy.write_text('actor User {} resource Repo { roles = ["reader"]; permissions = ["read"]; "read" if "reader"; }')
    command = [sys.executable, "-OO", "-B", Path(parser.__file__).parents[2] / "manage.py", "check_policy", policy]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout.startswith("no problems")


def test_no_table_touches_the_disk():
    before = set(Path(parser.__file__).parent.iterdir())
    parser._parser.__wrapped__()
    assert set(Path(parser.__file__).parent.iterdir()) == before
    assert not Path("parser.out").exists()


def test_and_binds_tighter_than_or_and_not_tighter_than_both():
    assert body("a() or b() and not c() and d()") == body("a() or (b() and (not c()) and d())")
    assert body("not a() or b()") == body("(not a()) or b()")
    assert body("not x = 1 and b()") == body("(not (x = 1)) and b()")


def test_parentheses_leave_no_trace_and_chains_are_flat():
    assert body("((a() and b()) and (c() and ((d()))))") == body("a() and b() and c() and d()")
    assert body("(a() or b()) or (c() or d())") == body("a() or b() or c() or d()")
    assert len(body("a() and (b() and c() and (d() and e()))").parts) == 5


@together("word", [*CONTEXTUAL, "role", "permission", "roles", "permissions", "relations", "new"])
def test_a_word_of_the_language_can_name_anything(word):
    text = f"""
        actor {word} {{ relations = {{ {word}: {word} }}; }}
        {word}({word}: {word}, {word}) if {word}({word}) and {word} matches {word} and {word} = {word}{{"{word}"}};
        declare {word}({word});
        test fixture {word} {{ {word}(1); fixture {word}; }}
        test "{word}" {{ setup {{ {word}(1); }} assert {word}({word}: {word}) iff {word} in ["x"]; }}
    """
    policy = parse(Source(text))
    assert policy.items[0].name.text == word
    assert parse(Source(print_policy(policy))) == policy


@together("word", sorted(RESERVED.keys() - {"true", "false", "matches!"}))
def test_a_reserved_word_names_nothing(word):
    assert rejection(f"p({word}: User);").problems[0].message == f"`{word}` is a reserved word"
    assert rejection(f"{word}(x);").problems[0].message == f"`{word}` is a reserved word"


def test_all_spellings_of_a_primitive_are_one_literal():
    def written(text):
        return parse(Source(f"p({text});")).items[0].head.params[0].value

    assert written("3") == written("+3") == written("003") == written("Integer{3}") == written('Integer{"+3"}')
    assert written("0") == written("-0")
    assert written("true") == written("Boolean{true}") == written('Boolean{"true"}')
    assert written('"x"') == written('String{"x"}') == written(r'"\x"')


def test_all_lexical_problems_are_reported_but_only_the_first_syntax_error():
    problems = rejection("p(1.5);\nq('a');\nr(x) if x == 3;\n").problems
    assert [problem.span.start for problem in problems] == [2, 10, 26]
    problems = rejection("p(x) q(x);\nr(x) s(x);\nt(1.5);\n").problems
    assert [problem.message for problem in problems] == ["unexpected `q`", "floats are not supported"]


# ---- limits and hostile texts -----------------------------------------------------------------------


def test_a_million_bytes_are_taken_and_one_more_is_not():
    comment = "#" * 999_994
    assert parse(Source(f"p(x);\n{comment}")).items
    assert rejection(f"p(x);\n{comment}#").problems[0].message == "the policy is larger than 1,000,000 bytes"
    assert rejection("#" + "é" * 500_000).problems[0].message == "the policy is larger than 1,000,000 bytes"


HIDING = ["\0", "\ud800", "\udfff", "\u202e", "\u2066", "\r"]


@together("char, text", product(HIDING, ["p(x);\n# {}x\n", 'p("{}");\n', "p{}(x);\n"]))
def test_characters_that_hide_or_cannot_be_stored_are_refused(char, text):
    caught = rejection(text.format(char))
    assert caught.problems[0].message == f"the policy contains the character U+{ord(char):04X}"
    assert caught.message.encode()


def test_two_hundred_levels_are_taken():
    deep = "q(x)"
    for level in range(199):
        deep = f"(r(x) {'and' if level % 2 else 'or'} {deep})"
    policy = parse(Source(f"p(x) if {deep};"))
    assert parse(Source(print_policy(policy))) == policy
    assert body("not " * 200 + "q(x)")
    assert len(parse(Source("p(x) if (((q(x)))) and not (r(x));\n" * 300)).items) == 300


FLAT = 20_000
LARGE = {
    "parentheses": "p(x) if " + "(" * 999_000,
    "closed parentheses": "p(x) if " + "(" * 5_000 + "q(x)" + ")" * 5_000 + ";",
    "nots": "p(x) if " + "not " * 240_000 + "q(x);",
    "nots and parentheses": "p(x) if " + "not (" * 5_000 + "q(x)" + ")" * 5_000 + ";",
    "braces": "{" * 1_000_000,
    "blocks": "resource R {" * 80_000,
    "brackets": "p(x) if x in " + "[" * 999_000,
    "quotes": '"' * 1_000_000,
    "apostrophes": "'" * 1_000_000,
    "backslashes": "\\" * 1_000_000,
    "escapes": 'p("' + "\\a" * 499_000 + '");',
    "dollars": "$" * 1_000_000,
    "control characters": "\x01" * 1_000_000,
    "digits": "p(" + "1" * 999_000 + ");",
    "floats": "1." * 500_000,
    "exponents": "1e" * 500_000,
    "a name": "a" * 1_000_000,
    "colons": "a::" * 330_000,
    "dots": "x." * 500_000,
    "spaced dots": ". " * 500_000,
    "foreign comments": "/*" * 500_000,
    "a foreign comment": "/" + "*" * 999_999,
    "unclosed strings": '"a\n' * 333_333,
    "pluses": "+ " * 500_000,
    "news": "new " * 250_000,
    "a spaced new": "new" + " " * 999_000,
    "ats": "@" * 1_000_000,
    "semicolons": ";" * 1_000_000,
    "hops": 'resource R { "a" if "b"' + ' on "c"' * 140_000 + "; }",
    "chained comparisons": "p(x) if x" + " = x" * 240_000 + ";",
    "a list": "p(x) if x in [" + "1," * 490_000 + "];",
    "arguments": "p(" + "x," * 490_000 + "x);",
    "supertypes": "actor A extends " + "B," * 490_000 + "{}",
    "unions": "resource R { relations = { a: B" + "|C" * 490_000 + " }; }",
    "conditions": "p(x) if " + " and ".join(["q(x)"] * 110_000) + ";",
    "strings as conditions": "p(x) if " + '"a" and ' * 120_000 + '"a";',
}


@pytest.mark.parametrize("text", some(LARGE.values(), 4), ids=LARGE.keys())
def test_hostile_text_is_refused_soon_and_shortly(text):
    """A megabyte of short rules takes twice as long."""
    with seconds_at_most(4):
        caught = rejection(text)
    assert len(caught.problems) <= 50
    assert len(caught.message) < 50_000
    assert caught.descriptions[0].startswith("policy:1:")


@pytest.mark.parametrize("connective", ["and", "or"])
def test_a_flat_rule_may_be_long(connective):
    parts = body(f" {connective} ".join(["q(x)"] * FLAT)).parts
    assert len(parts) == FLAT


def test_time_grows_with_length_and_no_faster():
    def seconds(operands: int) -> float:
        source = Source("p(x) if " + " and ".join(["q(x)"] * operands) + ";")
        started = time.process_time()
        parse(source)
        return time.process_time() - started

    seconds(100)
    assert seconds(40_000) < 30 * max(seconds(4_000), 0.01)


# ---- concurrency --------------------------------------------------------------------------------------


def test_parses_do_not_disturb_each_other():
    texts = [text_of(case) for folder in ("ast", "syntax_rejected") for case in cases(folder)]
    texts = [text for text in texts if len(text) < 10_000]
    expected = [_outcome(text) for text in texts]
    wrong: list[str] = []

    def work(offset: int) -> None:
        for index in range(len(texts)):
            place = (index * 7 + offset) % len(texts)
            if _outcome(texts[place]) != expected[place]:
                wrong.append(texts[place])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(offset,)) for offset in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def _outcome(text: str):
    try:
        return parse(Source(text))
    except PolicyRejected as rejected:
        return rejected.message


def test_the_tables_are_built_once():
    own_parser = parser._parser()
    parse(Source("p(x);"))
    assert parser._parser() is own_parser
