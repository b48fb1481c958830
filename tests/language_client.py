"""A client of the language server, over its standard input and output."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

from tests.service import ROOT

URI = "file:///policies/main.polar"
ABILITIES = lsp.ClientCapabilities(
    text_document=lsp.TextDocumentClientCapabilities(rename=lsp.RenameClientCapabilities(prepare_support=True))
)
LIMIT = 30  # seconds for anything to arrive


class Client(LanguageClient):
    """A client that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__("tests", "1")
        self.told: asyncio.Queue = asyncio.Queue()
        self.messages: list[str] = []
        self.version = 0
        self.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda told: self.told.put_nowait(told))
        self.feature(lsp.WINDOW_SHOW_MESSAGE)(lambda told: self.messages.append(told.message))
        self.read_at = 0.0  # when a message began to be read that came after this was set to 0
        self._structured = self.protocol.structure_message
        self.protocol.structure_message = self._read  # type: ignore[method-assign]

    def _read(self, data: dict[str, Any]) -> Any:
        self.read_at = self.read_at or time.perf_counter()
        return self._structured(data)

    def opened(self, text: str) -> None:
        self.version += 1
        item = lsp.TextDocumentItem(URI, "polar", self.version, text)
        self.text_document_did_open(lsp.DidOpenTextDocumentParams(item))

    def changed(self, text: str) -> None:
        self.version += 1
        identifier = lsp.VersionedTextDocumentIdentifier(self.version, URI)
        whole = [lsp.TextDocumentContentChangeWholeDocument(text)]
        self.text_document_did_change(lsp.DidChangeTextDocumentParams(identifier, whole))

    async def problems(self) -> list[tuple[str, str]]:
        """The next problems, those of the text as it is."""
        while True:
            told = await asyncio.wait_for(self.told.get(), LIMIT)
            if told.version == self.version:
                return [(place(found.range), found.message) for found in told.diagnostics]


def place(found: lsp.Range) -> str:
    """`line:character-character` of a range on one line."""
    assert found.start.line == found.end.line
    return f"{found.start.line}:{found.start.character}-{found.end.character}"


@asynccontextmanager
async def begun(folder: Path) -> AsyncIterator[Client]:
    """A server that has just begun, and its client; its database, of which it needs none, would be in the folder."""
    client = Client()
    variables = {**os.environ, "DATABASE_URL": f"sqlite:///{folder / 'a.sqlite3'}"}
    await client.start_io(sys.executable, str(ROOT / "manage.py"), "language_server", cwd=str(ROOT), env=variables)
    try:
        asking = lsp.InitializeParams(capabilities=ABILITIES, process_id=os.getpid())
        client.abilities = (await asyncio.wait_for(client.initialize_async(asking), LIMIT)).capabilities
        client.initialized(lsp.InitializedParams())
        yield client
        await asyncio.wait_for(client.shutdown_async(None), LIMIT)
    finally:
        client.exit(None)  # which ends it, whatever was before
        await asyncio.wait_for(client.stop(), LIMIT)
