"""Tokens: what a text is cut into before anything has meaning."""

import pytest

from policy.language.grammar import text_of
from policy.language.parser import CONTEXTUAL, LEGACY, RESERVED, tokens_of
from policy.language.source import Notes, PolicyRejected, Source


def tokens(text: str) -> str:
    """The tokens of a text that has no mistakes, as `KIND:text` words."""
    notes = Notes(Source(text))
    found = _read(notes)
    assert not notes.problems
    return " ".join(f"{token.type}:{token.value}" for token in found)


def mistakes(text: str) -> list[str]:
    notes = Notes(Source(text))
    _read(notes)
    return [problem.message for problem in notes.problems]


def kinds(text: str) -> str:
    return " ".join(token.type for token in _read(Notes(Source(text))))


def _read(notes: Notes) -> list:
    return list(tokens_of(notes))


NAMES = ["x", "_", "_x", "X9", "a_b", "ok?", "a::b", "A::b::c?", "Größe", "日本", "☃", "é9", "iffy", "matches_", "on_"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_token(name):
    assert tokens(name) == f"NAME:{name}"


def test_names_end_where_they_must():
    assert tokens("a:b") == "NAME:a COLON:: NAME:b"
    assert tokens("a::b::c:d") == "NAME:a::b::c COLON:: NAME:d"
    assert tokens("x?=3") == "NAME:x? EQ:= INTEGER:3"
    assert tokens("x ?=3") == "NAME:x INLINE_QUERY:?= INTEGER:3"
    assert tokens("x?y") == "NAME:x? NAME:y"


def test_words_of_the_language_have_kinds_of_their_own():
    for word, kind in (RESERVED | CONTEXTUAL).items():
        assert tokens(word) == f"{kind}:{word}"
    for word in (RESERVED | CONTEXTUAL).keys() - {"matches!"}:
        assert tokens(f"{word}s a::{word} {word}?") == f"NAME:{word}s NAME:a::{word} NAME:{word}?"


def test_the_longer_word_wins():
    assert tokens("x matches! T") == "NAME:x MATCHES_EXACTLY:matches! NAME:T"
    assert tokens("x matches T") == "NAME:x MATCHES:matches NAME:T"
    assert tokens("assert_not assert") == "ASSERT_NOT:assert_not ASSERT:assert"
    assert tokens("iff if") == "IFF:iff IF:if"
    assert tokens("x!=y<=z>=w<v>u=t") == (
        "NAME:x COMPARE:!= NAME:y COMPARE:<= NAME:z COMPARE:>= NAME:w COMPARE:< NAME:v COMPARE:> NAME:u EQ:= NAME:t"
    )


def test_a_sign_belongs_to_the_digits_after_it():
    assert tokens("-3 +4 x<-1 =-2") == "INTEGER:-3 INTEGER:+4 NAME:x COMPARE:< INTEGER:-1 EQ:= INTEGER:-2"
    assert mistakes("- 3") == ["arithmetic is not supported: `-`"]


def test_comments_and_space_separate_and_say_nothing():
    assert tokens('a#b\nc # d ; "\n\t\r\f\v\u00a0\u3000e#') == "NAME:a NAME:c NAME:e"
    assert tokens('"a # b" # "') == 'STRING:"a # b"'


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r'"plain"', "plain"),
        (r'"\n\r\t\0"', "\n\r\t\0"),
        (r'"\\ \" \' \q \N"', "\\ \" ' q N"),
        ('"line\\\nbreak"', "line\nbreak"),
        (r'"\\\\"', "\\\\"),
        (r'"\\"', "\\"),
        ('"é☃"', "é☃"),
        ('"\\é"', "é"),
        ('"tab\tin"', "tab\tin"),
    ],
)
def test_a_string_means_its_text(written, meant):
    assert tokens(written) == f"STRING:{written}"
    assert text_of(written) == meant


@pytest.mark.parametrize("text", ['"', '"a', '"a\nb', '"a\\"', '"a\\', '"\\\\\\"'])
def test_an_open_string_is_one_mistake_on_its_line(text):
    assert mistakes(text)[0] == "unterminated string"


@pytest.mark.parametrize("text", ["1.5", "-1.5", "+.5", "1e3", "1E-3", "1.5e+3", "0.0"])
def test_a_float_is_one_mistake(text):
    assert mistakes(text) == ["floats are not supported"]
    assert kinds(text) == "INTEGER"


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("x == y", "NAME EQ NAME"),
        ("x := y", "NAME EQ NAME"),
        ("x <> y", "NAME COMPARE NAME"),
        ("a & b", "NAME AND NAME"),
        ("a && b", "NAME AND NAME"),
        ("a || b", "NAME OR NAME"),
        ("!a", "NOT NAME"),
        ("a :- b", "NAME IF NAME"),
        ("'a'", "STRING"),
        ("'a", "STRING"),
        ("`a`", "STRING"),
        ("“a”", "STRING"),
        ('“a"', "STRING"),
        ("x.y", "NAME"),
        ("x . y::z", "NAME"),
        ("x + y", "NAME"),
        ('x / "y"', "NAME"),
        ("x % 3", "NAME"),
        ("new User(", "NAME LPAREN"),
        ("2fa", "NAME"),
        ("x // y", "NAME"),
        ("x /* y */ z", "NAME NAME"),
        ("x /* y", "NAME"),
        ("x $ y", "NAME NAME"),
        ("x @ y", "NAME NAME"),
        ("x\u200by", "NAME NAME"),
        ("x\u0080y", "NAME NAME"),
    ],
)
def test_after_a_mistake_the_lexer_goes_on(text, instead):
    assert len(mistakes(text)) == 1
    assert kinds(text) == instead


@pytest.mark.parametrize("word", LEGACY)
def test_words_of_older_polar_are_refused_with_advice(word):
    assert mistakes(word) == [f"`{word}` is reserved and not supported"]
    assert tokens(f"{word}_ {word}x x{word}") == f"NAME:{word}_ NAME:{word}x NAME:x{word}"


def test_new_is_a_name_where_it_creates_nothing():
    assert tokens("new: T") == "NAME:new COLON:: NAME:T"
    assert tokens("new and (x)") == "NAME:new AND:and LPAREN:( NAME:x RPAREN:)"
    assert mistakes("new User{") == ["`new` is not supported"]


def test_constants_and_flags_start_with_an_at_sign():
    assert tokens("@current_unix_time @other::one") == "NOW:@current_unix_time AT_NAME:@other::one"


def test_mistakes_beyond_a_limit_are_not_collected():
    with pytest.raises(PolicyRejected) as caught:
        mistakes("$ " * 1000)
    assert len(caught.value.problems) == 50
