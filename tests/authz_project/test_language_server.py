"""The language server, asked by a real client over its standard input and output; and how long its answers take."""

import asyncio
import gc
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from authz_project.language_server import answers
from authz_project.language_server.answers import OpenDocument, Positions, changed, hover_text
from policy.language.format import formatted
from policy.language.parser import CONTEXTUAL, RESERVED
from policy.language.source import Source
from tests.benchmarks.editor import long_policy
from tests.language_client import LIMIT, URI, begun, place
from tests.sampling import seeds
from tests.service import ROOT
from tests.yardstick import within

TEXT = """# 😀 a comment
actor User {}

resource Folder {
  roles = ["reader", "writer"];
  permissions = ["read"];
  relations = { parent: Folder };
  "reader" if "writer";
  role if role on "parent";
  "read" if "reader";
}

has_role(user: User, "reader", folder: Folder) if is_friend(user, folder);

test "readers read" {
  setup { has_role(User{"😀"}, "reader", Folder{"a"}); }
  assert allow(User{"😀"}, "read", Folder{"a"});
}

test "others do not" {
  assert_not allow(User{"bob"}, "read", Folder{"a"});
}
"""


def at(text: str, named: str, shift: int = 1) -> lsp.Position:
    """The position of the first place where it stands, in UTF-16."""
    before = text[: text.index(named) + shift]
    line = before.count("\n")
    return lsp.Position(line, len(before.rpartition("\n")[2].encode("utf-16-le")) // 2)


def asked(kind, named: str, shift: int = 1, text: str = TEXT, **more):
    return kind(text_document=lsp.TextDocumentIdentifier(URI), position=at(text, named, shift), **more)


@pytest.fixture
def session(tmp_path):
    """Runs what is asked of a server that has just begun."""

    def run(conversation) -> None:
        async def whole() -> None:
            async with begun(tmp_path) as client:
                await asyncio.wait_for(conversation(client), 2 * LIMIT)

        asyncio.run(whole())

    return run


def test_problems_follow_the_text(session):
    async def conversation(client):
        client.opened(TEXT.replace('"reader" if "writer"', '"reader" if "raiter"'))
        ((where, message),) = await client.problems()
        assert (where, "raiter" in message, "did you mean" in message) == ("7:14-22", True, True)
        client.changed(TEXT)
        assert await client.problems() == []
        client.changed(TEXT.replace('User{"bob"}', 'Usr{"😀"}, x:'))
        ((where, message),) = await client.problems()
        assert where.startswith("20:") and "unexpected" in message
        for length in range(0, len(TEXT), 40):
            client.changed(TEXT[:length])
        client.changed(TEXT + "p(x: User) if q(x, y);")
        ((where, message),) = await client.problems()
        assert (where, "is used only once" in message) == ("22:19-20", True)
        identifier = lsp.TextDocumentIdentifier(URI)
        client.text_document_did_close(lsp.DidCloseTextDocumentParams(identifier))
        assert (await asyncio.wait_for(client.told.get(), LIMIT)).diagnostics == ()
        with pytest.raises(JsonRpcException, match="is not open"):
            await client.text_document_code_lens_async(lsp.CodeLensParams(identifier))

    session(conversation)


def test_names_are_shown_found_and_renamed(session):
    async def conversation(client):
        client.opened(TEXT)
        await client.problems()

        async def shown(named: str, shift: int = 1) -> str:
            found = await client.text_document_hover_async(asked(lsp.HoverParams, named, shift=shift))
            return found.contents.value if found else ""

        assert 'roles = ["reader", "writer"];\n  permissions = ["read"];\n  relations = { parent: Folder };' in (
            await shown("Folder {")
        )
        told = await shown('"reader", "writer"', 2)
        assert "role of `Folder`" in told and '"reader" if "writer";  # line 8' in told and "# line 13" in told
        assert "is_friend(User, Folder)" in await shown("is_friend")
        assert "user: User" in await shown("user, folder")
        assert told.startswith('```polar\n"reader"\n```\n\n* role of `Folder`\n')
        assert await shown("# ") == ""

        definition = await client.text_document_definition_async(asked(lsp.DefinitionParams, '"parent";', shift=2))
        assert [place(each.range) for each in definition] == ["6:16-22"]
        context = lsp.ReferenceContext(include_declaration=True)
        asking = asked(lsp.ReferenceParams, 'has_role(User{"😀"}, "reader"', shift=26, context=context)
        assert [place(each.range) for each in await client.text_document_references_async(asking)] == [
            "4:12-18", "7:3-9", "9:13-19", "12:22-28", "15:32-38",
        ]  # fmt: skip
        asking.context.include_declaration = False
        assert len(await client.text_document_references_async(asking)) == 4
        marked = await client.text_document_document_highlight_async(asked(lsp.DocumentHighlightParams, "user,"))
        assert [place(each.range) for each in marked] == ["12:9-13", "12:60-64"]

        prepared = await client.text_document_prepare_rename_async(asked(lsp.PrepareRenameParams, "Folder {"))
        assert (place(prepared.range), prepared.placeholder) == ("3:9-15", "Folder")
        edit = await client.text_document_rename_async(asked(lsp.RenameParams, "Folder {", new_name="Directory"))
        assert applied(TEXT, edit.changes[URI]) == TEXT.replace("Folder", "Directory")
        for named, new, why in (("Folder {", "User", "already"), ("allow", "x", "is built-in")):
            with pytest.raises(JsonRpcException, match=why) as refused:
                await client.text_document_rename_async(asked(lsp.RenameParams, named, new_name=new))
            assert refused.value.code == -32803

    session(conversation)


def test_a_refused_name_is_told_and_is_no_failure_in_the_log(tmp_path):
    place = {"textDocument": {"uri": URI}, "position": {"line": 3, "character": 10}}
    document = {"uri": URI, "languageId": "polar", "version": 1, "text": TEXT}
    said = (
        {"id": 1, "method": "initialize", "params": {"processId": os.getpid(), "rootUri": None, "capabilities": {}}},
        {"method": "initialized", "params": {}},
        {"method": "textDocument/didOpen", "params": {"textDocument": document}},
        {"id": 2, "method": "textDocument/rename", "params": {**place, "newName": "User"}},
        {"id": 3, "method": "shutdown"},
        {"method": "exit"},
    )
    bodies = [json.dumps({"jsonrpc": "2.0", **each}).encode() for each in said]
    done = subprocess.run(
        [sys.executable, ROOT / "manage.py", "language_server"],
        env=os.environ | {"DATABASE_URL": f"sqlite:///{tmp_path / 'a.sqlite3'}"},
        input=b"".join(b"Content-Length: %d\r\n\r\n%b" % (len(body), body) for body in bodies),
        capture_output=True,
        timeout=2 * LIMIT,
    )
    assert b"a type `User` already exists" in done.stdout
    assert done.stderr == b""


def test_names_that_are_markdown_are_shown_as_they_are():
    name = r"**b** [c](command:d) <img src=x>\n```\n"
    text = f'resource R {{\n  permissions = ["{name}"];\n  "{name}" if "owner";\n}}\n'
    document = OpenDocument(URI, text, 1, "utf-16")
    shown = hover_text(document, document.names.at(text.index(name)))
    assert shown.startswith(f'````polar\n"{name}"\n````\n\n* permission of `R`\n\ngranted by\n\n````polar\n"{name}" if')
    outside = re.sub(r"^(`{3,})polar\n.*?\n\1$", "", shown, flags=re.DOTALL | re.MULTILINE)
    assert "granted by" in outside and "command:" not in outside and "<img" not in outside


def test_what_is_typed_is_completed(session):
    async def conversation(client):
        client.opened(TEXT)
        typed = TEXT.replace('  "read" if "reader";', '  "read" if "re')
        client.changed(typed)
        asking = asked(lsp.CompletionParams, 'if "re\n', shift=6, text=typed)
        found = await client.text_document_completion_async(asking)
        assert {"reader", "writer"} <= {item.label for item in found.items}
        (item,) = [item for item in found.items if item.label == "reader" and item.detail == "role of Folder"]
        edit = applied(typed, [item.text_edit])
        assert '  "read" if "reader\n}' in edit
        typed = TEXT.replace("user: User", "user: ")
        client.changed(typed)
        found = await client.text_document_completion_async(asked(lsp.CompletionParams, "user: ,", shift=6, text=typed))
        assert {item.label for item in found.items} >= {"User", "Folder", "Actor", "String"}

    session(conversation)


def test_a_text_is_outlined_and_laid_out(session):
    async def conversation(client):
        assert client.abilities.document_formatting_provider and client.abilities.rename_provider.prepare_provider
        client.opened(TEXT)
        identifier = lsp.TextDocumentIdentifier(URI)
        symbols = await client.text_document_document_symbol_async(lsp.DocumentSymbolParams(identifier))
        assert [symbol.name for symbol in symbols] == [
            "User", "Folder", "has_role", "readers read", "others do not",
        ]  # fmt: skip
        assert [inner.name for inner in symbols[1].children] == ["roles", "permissions", "relations"]
        asking = lsp.DocumentFormattingParams(identifier, lsp.FormattingOptions(4, True))
        edits = await client.text_document_formatting_async(asking)
        assert applied(TEXT, edits) == formatted(TEXT) != TEXT
        client.changed(formatted(TEXT))
        assert not await client.text_document_formatting_async(asking)
        client.changed("actor {")
        assert not await client.text_document_formatting_async(asking)

    session(conversation)


def test_tests_are_run_where_they_stand(session):
    async def conversation(client):
        client.opened(TEXT)
        await client.problems()
        lenses = await client.text_document_code_lens_async(lsp.CodeLensParams(lsp.TextDocumentIdentifier(URI)))
        assert [(lens.range.start.line, lens.command.title) for lens in lenses] == [
            (14, "Run all 2 tests"), (14, "Run test"), (19, "Run test"),
        ]  # fmt: skip

        async def run(lens) -> dict:
            asking = lsp.ExecuteCommandParams(lens.command.command, lens.command.arguments)
            return await client.workspace_execute_command_async(asking)

        found = await run(lenses[0])
        assert found["message"] == "2 tests passed" and found["failures"] == []
        found = await run(lenses[2])
        assert found["tests"] == [{"name": "others do not", "passed": 1, "total": 1}]
        client.changed(TEXT.replace("assert_not allow", "assert allow"))
        assert await client.problems() == []
        found = await run(lenses[0])
        assert found["message"] == client.messages[-1] == "1 of 2 tests failed"
        ((where, message),) = await client.problems()
        assert where == "20:2-49" and message.startswith("test `others do not`: expected true")
        client.changed("actor User {")
        assert "never closed" in (await run(lenses[0]))["message"]

    session(conversation)


def applied(text: str, edits) -> str:
    positions = Positions(Source(text))
    for edit in sorted(edits, key=lambda edit: (edit.range.start.line, edit.range.start.character), reverse=True):
        start, end = positions.offset(edit.range.start), positions.offset(edit.range.end)
        text = text[:start] + edit.new_text + text[end:]
    return text


# ---- positions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", list(lsp.PositionEncodingKind))
def test_positions_and_offsets_are_inverse(encoding):
    text = 'a😀b\r\n\n"é\u2028\x0c日本"\n x'
    positions = Positions(Source(text), encoding)
    for offset in range(len(text) + 1):
        if text[offset - 1 : offset + 1] != "\r\n":
            assert positions.offset(positions.position(offset)) == offset
    assert positions.offset(lsp.Position(0, 99)) == 3 and positions.offset(lsp.Position(99, 0)) == len(text)
    assert positions.position(2).character == {"utf-8": 5, "utf-16": 3, "utf-32": 2}[encoding]


# ---- time ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large() -> Iterator[OpenDocument]:
    """Two thousand lines, with what is looked for a moment after they were opened."""
    parts = [path.read_text() for path in sorted((ROOT / "tests" / "policies").glob("*.polar"))]
    text = "".join(parts * 2)
    text = "".join(text.splitlines(keepends=True)[:2000])
    document = OpenDocument(URI, text, 1, "utf-16")
    assert len(document.names.occurrences) > 4000 and document.outline.types
    gc.collect()
    gc.freeze()  # as the command line does once all is imported
    yield document
    gc.unfreeze()


def spread(document: OpenDocument) -> list[lsp.Position]:
    lines = document.text.count("\n")
    return [lsp.Position(line, 4) for line in range(0, lines, lines // 8)]


QUESTIONS = {
    "hover": answers.hovered,
    "definition": answers.definitions,
    "references": lambda document, position: answers.references(document, position, True),
    "highlights": answers.highlights,
    "completion": answers.completed,
    "symbols": lambda document, _: answers.symbols(document),
    "lenses": lambda document, _: answers.lenses(document),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_about_a_large_text_comes_at_once(large, question):
    for position in spread(large):
        within(0.05, lambda document, where=position: QUESTIONS[question](document, where), lambda: large)


def test_what_is_typed_into_a_large_text_is_completed_at_once(large):
    for position in spread(large):
        offset = large.positions.offset(position)
        typed = partial(changed, large, f"{large.text[:offset]}re{large.text[offset:]}", 2)
        here = lsp.Position(position.line, position.character + 2)
        within(0.05, lambda document, where=here: answers.completed(document, where), typed)


def test_a_text_is_laid_out_at_once_after_each_key():
    """Only what was typed is parsed: a text of this length takes 30 to 50 ms."""
    text = long_policy(2000)
    opened = OpenDocument(URI, text, 1, "utf-16")
    assert opened.compiled.program
    middle = text.index('"read" if "viewer"', len(text) // 2)
    typed = f"{text[:middle]}  {text[middle:]}"
    edits = within(0.05, answers.layout, lambda: changed(opened, typed, 2))
    assert applied(typed, edits) == formatted(text) != typed


@seeds(range(30), 10)
def test_what_is_typed_is_laid_out_as_if_it_had_just_been_opened(seed):
    random = Random(seed)
    document = OpenDocument(URI, TEXT, 1, "utf-16")
    for version in range(2, 40):
        if random.random() < 0.5:
            _ = document.compiled
        text = edited(document.text, random) if random.random() < 0.8 else TEXT
        document = changed(document, text, version)
        assert answers.layout(document) == answers.layout(OpenDocument(URI, text, 1, "utf-16"))


def test_a_brace_in_the_middle_of_a_rule_ends_no_statement():
    text = TEXT + 'is_bob(user: User) if user = User{"bob"} and is_known(user);\n'
    opened = OpenDocument(URI, text, 1, "utf-16")
    assert opened.compiled.program
    for before, after in (("and is_known", "or is_known"), ("} and", "}  and"), ("} and", "} nd")):
        typed = text.replace(before, after)
        found = answers.layout(changed(opened, typed, 2))
        assert applied(typed, found) == (formatted(typed) if after != "} nd" else typed)


def edited(text: str, random: Random) -> str:
    """With something gone, doubled, or typed, somewhere."""
    start = random.randrange(len(text))
    end = min(len(text), start + random.choice((0, 0, 1, 1, 3, 40)))
    words = ("", "", "\n\n", "not ", 'User{"x"}', " and p(u)", "if", text[start:end] * 2)
    typed = random.choice((*words, *'"#{}();, \n'))
    return text[:start] + typed + text[end:]


# ---- its end ------------------------------------------------------------------------------------------------------


def test_it_ends_as_it_is_told_to(tmp_path):
    """With 0 where it was asked to shut down first, as the protocol says, and without a complaint."""
    asked = [{"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": None, "capabilities": {}}},
             {"method": "initialized", "params": {}}, {"id": 2, "method": "shutdown"}, {"method": "exit"}]  # fmt: skip
    bodies = [json.dumps({"jsonrpc": "2.0", **each}) for each in asked]
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "language_server"],
        input="".join(f"Content-Length: {len(body)}\r\n\r\n{body}" for body in bodies), capture_output=True, text=True,
        env={**os.environ, "DATABASE_URL": f"sqlite:///{tmp_path / 'a.sqlite3'}"}, cwd=tmp_path, timeout=LIMIT * 2,
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert '"completionProvider"' in done.stdout


# ---- without the extra --------------------------------------------------------------------------------------------


def test_without_pygls_it_says_what_to_install(tmp_path):
    program = (
        "import sys; sys.modules['pygls'] = None; sys.argv[1:] = ['language_server']; import manage; manage.main()"
    )
    variables = {**os.environ, "DATABASE_URL": f"sqlite:///{tmp_path / 'a.sqlite3'}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and 'pip install "authz-project[editor]"' in done.stderr


def test_nothing_else_imports_it():
    users = [
        path
        for app in ("authz_project", "checks", "facts", "localsql", "policy")
        for path in (ROOT / app).rglob("*.py")
    ]
    users = [path for path in users if "pygls" in path.read_text() or "lsprotocol" in path.read_text()]
    assert {path.parent for path in users} <= {
        ROOT / "authz_project" / "language_server", ROOT / "authz_project" / "management" / "commands",
    }  # fmt: skip
    assert Path(answers.__file__) in users


# ---- colours ------------------------------------------------------------------------------------------------------


def patterns(grammar) -> Iterator[str]:
    """All expressions of a TextMate grammar."""
    for key, value in grammar.items() if isinstance(grammar, dict) else enumerate(grammar):
        if isinstance(value, dict | list):
            yield from patterns(value)
        elif key in ("match", "begin", "end"):
            yield value


def test_the_grammar_for_colours_knows_every_word():
    grammar = json.loads((ROOT / "authz_project" / "deploy" / "vscode" / "polar.tmLanguage.json").read_text())
    expressions = [re.compile(pattern) for pattern in patterns(grammar)]
    examples = {"extends": "extends Party", "matches!": "matches! User", "matches": "matches User",
                "actor": "actor User", "resource": "resource Folder"}  # fmt: skip
    for word in {*RESERVED, *CONTEXTUAL} - {"type"}:
        text = examples.get(word, word)
        assert any(found.start() == 0 for each in expressions for found in each.finditer(text)), word
    included = {f"#{name}" for name in grammar["repository"]}
    assert {each["include"] for each in grammar["patterns"]} == included
