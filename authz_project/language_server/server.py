"""The language server: open documents, requests about them, and diagnostics, sent shortly after each change."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django.db import connections
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.protocol import json_rpc

from authz_project.language_server import answers
from authz_project.language_server.answers import RUN_TESTS, CannotRename, OpenDocument, changed
from checks import testing
from checks.asking.run import in_memory
from policy.errors import AuthzError
from policy.language.source import Problem, Span
from policy.publishing import TestReport, results_of
from policy.rules.program import Program

QUIET = 0.2  # seconds without a change after which diagnostics are computed (debouncing)
_FAILED = -32803  # the protocol's RequestFailed


class PolicyServer(LanguageServer):
    """The open documents, by URI."""

    def __init__(self, version: str):
        # Full sync, because incremental edits use line numbers, and Polar's line ends differ from those of most
        # programs.
        super().__init__("authz", version, text_document_sync_kind=types.TextDocumentSyncKind.Full)
        self.documents: dict[str, OpenDocument] = {}
        self.waiting: dict[str, asyncio.Task[None]] = {}

    def took(self, uri: str, version: int) -> None:
        text = self.workspace.get_text_document(uri).source
        before = self.documents.get(uri)
        if before is None:
            encoding = str(getattr(self.workspace.position_encoding, "value", self.workspace.position_encoding))
            self.documents[uri] = OpenDocument(uri, text, version, encoding)
        else:
            self.documents[uri] = changed(before, text, version)
        self._look_again(uri)

    def forget(self, uri: str) -> None:
        self.documents.pop(uri, None)
        if task := self.waiting.pop(uri, None):
            task.cancel()
        self._publish(uri, 0, [])

    def _look_again(self, uri: str) -> None:
        if task := self.waiting.get(uri):
            task.cancel()
        self.waiting[uri] = asyncio.get_running_loop().create_task(self._problems_of(uri))

    async def _problems_of(self, uri: str) -> None:
        await asyncio.sleep(QUIET)
        document = self.documents[uri]
        _ = document.names, document.outline  # for subsequent requests
        compiled = await asyncio.to_thread(lambda: document.compiled)
        if self.documents.get(uri) is document:
            self.publish(document, compiled.problems)

    def publish(self, document: OpenDocument, problems: tuple[Problem, ...]) -> None:
        self._publish(document.uri, document.version, answers.diagnostics(document, problems))

    def _publish(self, uri: str, version: int, found: list[types.Diagnostic]) -> None:
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, version))

    def document(self, uri: str) -> OpenDocument:
        found = self.documents.get(uri)
        if found is None:
            raise JsonRpcException(f"{uri} is not open", code=_FAILED)
        return found

    async def run_tests(self, uri: str, name: str) -> dict[str, Any]:
        """Run one test of a document, or without a name, all. Return the result, and mark failures."""
        document = self.document(uri)
        compiled = await asyncio.to_thread(lambda: document.compiled)
        if compiled.program is None:
            message = f"the policy has errors: {compiled.problems[0].message}"
            return self._result(types.MessageType.Error, message, TestReport())
        tests = tuple(test for test in compiled.program.tests if name in ("", test.name))
        try:
            report = await asyncio.to_thread(_tested, replace(compiled.program, tests=tests))
        except AuthzError as reason:
            return self._result(types.MessageType.Error, reason.message, TestReport())
        if self.documents.get(uri) is document:
            self.publish(document, (*compiled.problems, *_failures(document, report)))
        kind = types.MessageType.Info if report.success else types.MessageType.Error
        return self._result(kind, results_of(report) if tests else "this test does not exist", report)

    def _result(self, kind: types.MessageType, message: str, report: TestReport) -> dict[str, Any]:
        self.window_show_message(types.ShowMessageParams(kind, message))
        tests = [{"name": test.name, "passed": test.passed, "total": test.total} for test in report.tests]
        return {"message": message, "tests": tests, "failures": list(report.errors)}


def _tested(program: Program) -> TestReport:
    """Run the tests. The thread keeps no connection."""
    try:
        return testing.run(program)
    finally:
        connections.close_all()


def _failures(document: OpenDocument, report: TestReport) -> list[Problem]:
    """Return the failed assertions, as problems of their lines."""
    found = []
    for test in report.tests:
        for one in test.assertions:
            if not one.passed:
                start = document.text.index(one.text, document.source.line_start(one.line))
                found.append(Problem(f"test `{test.name}`: {one.message}", Span(start, start + len(one.text))))
    return found


# ---- request handlers ---------------------------------------------------------------------------------------------

_ANSWERS: dict[str, Callable[[OpenDocument, Any], object]] = {
    types.TEXT_DOCUMENT_HOVER: lambda document, asked: answers.hovered(document, asked.position),
    types.TEXT_DOCUMENT_DEFINITION: lambda document, asked: answers.definitions(document, asked.position),
    types.TEXT_DOCUMENT_REFERENCES: lambda document, asked: answers.references(
        document, asked.position, asked.context.include_declaration
    ),
    types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT: lambda document, asked: answers.highlights(document, asked.position),
    types.TEXT_DOCUMENT_DOCUMENT_SYMBOL: lambda document, _: answers.symbols(document),
    types.TEXT_DOCUMENT_FORMATTING: lambda document, _: answers.layout(document),
    types.TEXT_DOCUMENT_CODE_LENS: lambda document, _: answers.lenses(document),
    types.TEXT_DOCUMENT_COMPLETION: lambda document, asked: answers.completed(document, asked.position),
    types.TEXT_DOCUMENT_PREPARE_RENAME: lambda document, asked: answers.prepared(document, asked.position),
    types.TEXT_DOCUMENT_RENAME: lambda document, asked: answers.rename(document, asked.position, asked.new_name),
}
_OPTIONS = {
    types.TEXT_DOCUMENT_COMPLETION: types.CompletionOptions(trigger_characters=['"', "(", ",", ":", "{"]),
    types.TEXT_DOCUMENT_RENAME: types.RenameOptions(prepare_provider=True),
    types.TEXT_DOCUMENT_CODE_LENS: types.CodeLensOptions(resolve_provider=False),
}


def built(version: str) -> PolicyServer:
    """Return a server with all handlers registered, not started yet."""
    server = PolicyServer(version)
    for name, answer in _ANSWERS.items():
        server.feature(name, _OPTIONS.get(name))(_handler(server, answer))

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(asked: types.DidOpenTextDocumentParams) -> None:
        server.took(asked.text_document.uri, asked.text_document.version)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def edited(asked: types.DidChangeTextDocumentParams) -> None:
        server.took(asked.text_document.uri, asked.text_document.version)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(asked: types.DidCloseTextDocumentParams) -> None:
        server.forget(asked.text_document.uri)

    @server.command(RUN_TESTS)
    async def run_tests(uri: str, name: str) -> dict[str, Any]:
        return await server.run_tests(uri, name)

    return server


def _handler(server: PolicyServer, answer: Callable[[OpenDocument, Any], object]) -> Callable[[Any], object]:
    def handle(asked: Any) -> object:
        try:
            return answer(server.document(asked.text_document.uri), asked)
        except CannotRename as reason:
            raise JsonRpcException(str(reason), code=_FAILED) from None

    return handle


def _is_failure(record: logging.LogRecord) -> bool:
    """Return whether there was an internal error. A refused rename is none: its reason is in the response."""
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, JsonRpcException) and error.code == _FAILED)


def serve(version: str) -> None:
    """Serve on standard input and output until the editor ends the connection."""
    logging.getLogger("pygls").setLevel(logging.WARNING)
    logging.getLogger(json_rpc.__name__).addFilter(_is_failure)
    with in_memory():  # tests of policies need no database
        built(version).start_io()
