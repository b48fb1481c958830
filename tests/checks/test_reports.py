"""What `test_policy` and `check_policy` write for other programs."""

import io
import sys
from xml.etree import ElementTree

import pytest
from django.core.management import CommandError, call_command

POLICY = """actor User {}
resource Repo {
  roles = ["reader", "writer"];
  permissions = ["read", "write"];
  "read" if "reader";
  "reader" if "writer";
  "write" if "writer";
}
"""
READERS = """test "readers read" {
  setup { has_role(User{"ann"}, "reader", Repo{"a"}); }
  assert allow(User{"ann"}, "read", Repo{"a"});
  assert_not allow(User{"bob"}, "read", Repo{"a"});
}
"""
WRONG = r"""test "writers <&> \"write\" # 100% \\ \n\t, a: b" {
  setup { has_role(User{"ann"}, "writer", Repo{"a"}); }
  assert_not allow(User{"ann"}, "write", Repo{"a"});
  assert allow(User{"ann"}, "write", Repo{"a"});
  assert allow(User{"ann"}, "read",
    Repo{"b,%]]>"});
}
"""
WRONG_NAME = 'writers <&> "write" # 100% \\ \n\t, a: b'


pytestmark = pytest.mark.parametrize("db", ["sqlite"], indirect=True)


@pytest.fixture(autouse=True)
def database(db):
    """Tests of policies are run in one, whatever it is."""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(**texts: str) -> list[str]:
        for name, text in texts.items():
            (tmp_path / f"{name}.polar").write_text(text)
        return [f"{name}.polar" for name in texts]

    return write


def ended(*arguments: str) -> tuple[str, str]:
    """What is on the standard output, and how it ended: empty where it ended well."""
    output = io.StringIO()
    try:
        call_command(*arguments, stdout=output, stderr=io.StringIO())
    except CommandError as reason:
        assert reason.returncode == 1
        return output.getvalue(), str(reason)
    return output.getvalue(), ""


# ---- GitHub --------------------------------------------------------------------------------------------------------


def test_problems_are_told_to_github_in_their_own_files(files):
    names = files(a="actor User {}\n", b='\nresource R extends "Nix, 100%" {}\n')
    output, reason = ended("check_policy", *names, "--format", "github")
    assert output == (
        '::error file=b.polar,line=2,endLine=2,col=20,endColumn=30,title=Policy::unexpected `"Nix, 100%25"` '
        "(expected a name)\n"
    )
    assert reason.startswith("1 problem found")


def test_warnings_are_told_to_github(files):
    (name,) = files(a=POLICY + "p(x: User) if q(x, y);\n")
    output, reason = ended("check_policy", name, "--format", "github")
    first, last = output.splitlines()
    assert first.startswith("::warning file=a.polar,line=9,endLine=9,col=20,endColumn=20,title=Policy::`y` is used")
    assert (last, reason) == ("no problems: 2 types, 4 rules, 0 tests", "")
    assert ended("check_policy", name, "--format", "github", "--strict") == (f"{first}\n", "1 warning")


def test_what_comes_from_the_standard_input_has_no_file_at_github(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"actor {")))
    assert ended("check_policy", "-", "--format", "github")[0].startswith("::error title=Policy::unexpected `{`")


def test_a_problem_of_several_lines_has_no_columns(files):
    (name,) = files(a='actor User {}\np(x: User, "a \\\nb") if q(x) and "a \\\nb";\n')
    output, _ = ended("check_policy", name, "--format", "github")
    assert "line=3,endLine=4,title=" in output and "col=" not in output


def test_failures_are_told_to_github(files):
    names = files(rules=POLICY, tests=READERS + WRONG)
    output, reason = ended("test_policy", *names, "--format", "github", "--coverage")
    errors = [line for line in output.splitlines() if line.startswith("::error")]
    title = 'writers <&> "write" # 100%25 \\ %0A\t%2C a%3A b'
    whys = [error.partition("%0A✓" if "got true" in error else "%0A·") for error in errors]
    assert [said for said, _, _ in whys] == [
        f"::error file=tests.polar,line=8,title=test {title}::expected false, got true",
        f"::error file=tests.polar,line=10,title=test {title}::expected true, got false",
    ]
    assert 'by rules.polar:7: "write" if "writer";%0A' in whys[0][2]
    assert '✗ has_role(User:ann, "reader", Repo:"b,%25]]>")  no matching fact or rule' in whys[1][2]
    assert output.endswith("\n1 of 2 tests failed\n3 of 3 rules are exercised by a test\n")
    assert reason == "1 of 2 tests failed"


# ---- JUnit ---------------------------------------------------------------------------------------------------------


def test_cases_of_junit(files):
    names = files(rules=POLICY + READERS, tests=WRONG)
    output, reason = ended("test_policy", *names, "--format", "junit")
    root = ElementTree.fromstring(output.encode())
    assert root.attrib == {"tests": "2", "failures": "1", "errors": "0"}
    first, second = root.findall("testsuite")
    assert (first.attrib, second.get("name"), second.get("failures")) == (
        {"name": "rules.polar", "tests": "1", "failures": "0", "errors": "0"}, "tests.polar", "1",
    )  # fmt: skip
    (passed,), (failed,) = first, second
    assert passed.attrib == {
        "name": "readers read", "classname": "rules.polar", "file": "rules.polar", "line": "11",
    }  # fmt: skip
    assert list(passed) == [] and failed.get("name") == WRONG_NAME
    (failure,) = failed
    assert (failure.tag, failure.get("message")) == ("failure", "2 of 3 assertions failed")
    one, _, other = failure.text.partition("tests.polar:5:")
    assert one.startswith(
        'tests.polar:3: expected false, got true\n  assert_not allow(User{"ann"}, "write", Repo{"a"});\n  ✓ '
    )
    assert other.startswith(' expected true, got false\n  assert allow(User{"ann"}, "read", Repo{"b,%]]>"});\n  · ')
    assert reason == "1 of 2 tests failed"


def test_a_policy_that_is_refused_is_an_error_of_junit(files):
    output, reason = ended("test_policy", *files(a="actor User {}", b="\nactor {"), "--format", "junit")
    root = ElementTree.fromstring(output.encode())
    assert root.attrib == {"tests": "1", "failures": "0", "errors": "1"}
    (case,) = root.iter("testcase")
    (error,) = case
    assert (case.get("file"), case.get("line"), error.tag) == ("b.polar", "2", "error")
    assert error.get("message") == "unexpected `{`" and error.text.startswith("b.polar:2:7: unexpected `{`")
    assert reason.startswith("1 problem found")


def test_characters_that_xml_cannot_hold_are_replaced(files):
    (name,) = files(a=POLICY + READERS.replace("readers read", "a\u0001b\uffff\U0001f600"))
    root = ElementTree.fromstring(ended("test_policy", name, "--format", "junit")[0].encode())
    assert next(root.iter("testcase")).get("name") == "a\ufffdb\ufffd\U0001f600"


def test_no_tests_are_a_report_too(files):
    (name,) = files(a=POLICY)
    assert ElementTree.fromstring(ended("test_policy", name, "--format", "junit")[0].encode()).get("tests") == "0"
    assert ended("test_policy", name, "--format", "github") == ("the policy has no tests\n", "")


# ---- what cannot be seen ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written_as", "name"),
    [("text", "a\\n::error::b\\u001b[2J\\u009bc"), ("github", "a%0A%3A%3Aerror%3A%3Ab\\u001b[2J\\u009bc")],
)
def test_what_cannot_be_seen_is_spelled_out(files, written_as, name):
    wrong = READERS.replace("assert_not", "assert").replace("readers read", "a\\n::error::b\u001b[2J\u009bc")
    (file,) = files(a=POLICY + wrong.replace('"bob"', '"bob\u001b[2K"'))
    output, _ = ended("test_policy", file, "--format", written_as, "--coverage")
    assert name in output and output.replace("\n", "").isprintable()
    assert not any(line.startswith("::error::") for line in output.splitlines())


def test_rules_that_no_test_exercises_are_spelled_out(files):
    (file,) = files(a=POLICY + 'p(_: User) if q("\u001b[2J\u009b");\n' + READERS)
    for written_as in ("text", "github"):
        output, _ = ended("test_policy", file, "--format", written_as, "--coverage")
        assert 'q("\\u001b[2J\\u009b")' in output and output.replace("\n", "").isprintable()


# ---- at least so many rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("written_as", ["text", "junit", "github"])
def test_too_few_rules_with_a_test_fail(files, written_as):
    (name,) = files(a=POLICY + READERS)
    output, reason = ended("test_policy", name, "--coverage-minimum", "34", "--format", written_as)
    assert reason == "1 of 3 rules are exercised by a test, 33.3 %; at least 34 % are required"
    assert '"write" if "writer";' in output.replace("&quot;", '"')
    output, reason = ended("test_policy", name, "--coverage-minimum", "33.3", "--format", written_as)
    assert reason == ""


def test_how_each_format_tells_of_too_few(files):
    (name,) = files(a=POLICY + READERS)
    told = {kind: ended("test_policy", name, "--coverage-minimum", "90", "--format", kind)[0] for kind in KINDS}
    assert "::warning file=a.polar,line=6,title=Coverage::no test exercises" in told["github"]
    assert "::error title=Coverage::1 of 3 rules are exercised by a test, 33.3 %25;" in told["github"]
    root = ElementTree.fromstring(told["junit"].encode())
    assert root.get("failures") == "1" and "1 of 3" in root.find(".//failure").get("message")


KINDS = ("github", "junit")


def test_a_failed_test_and_too_few_rules_are_both_told(files):
    (name,) = files(a=POLICY + READERS.replace("assert_not", "assert"))
    _, reason = ended("test_policy", name, "--coverage-minimum", "100")
    assert reason.startswith("1 of 1 test failed; 1 of 3 rules")


def test_without_rules_all_of_them_are_exercised(files):
    assert ended("test_policy", *files(a="actor User {}"), "--coverage-minimum", "100")[1] == ""


@pytest.mark.parametrize("wrong", ["-1", "101", "nan", "ninety", ""])
def test_a_minimum_is_a_percentage(files, wrong):
    with pytest.raises(CommandError, match="is not a number from 0 to 100"):
        call_command("test_policy", *files(a=POLICY), f"--coverage-minimum={wrong}")
