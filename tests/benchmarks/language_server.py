"""How long answers of the language server take in a long policy, right after a key and once its mistakes are marked.

    python -m tests.benchmarks.language_server [--lines 2000] [--times 20] [--mark 50]

A client asks over standard input and output, as an editor does, and sends the whole text with each key, as this server
wants it. What is asked "after a key" is asked at once, so the answer waits until the server has taken the key.
Prints milliseconds: the median and the most.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp

from tests.benchmarks.editor import long_policy
from tests.language_client import URI, Client, begun

Question = Callable[[Client, lsp.TextDocumentIdentifier, lsp.Position], Awaitable[Any]]
QUESTIONS: dict[str, Question] = {
    "hover": lambda client, text, at: client.text_document_hover_async(lsp.HoverParams(text, at)),
    "definition": lambda client, text, at: client.text_document_definition_async(lsp.DefinitionParams(text, at)),
    "references": lambda client, text, at: client.text_document_references_async(
        lsp.ReferenceParams(lsp.ReferenceContext(include_declaration=True), text, at)
    ),
    "completion": lambda client, text, at: client.text_document_completion_async(lsp.CompletionParams(text, at)),
    "symbols": lambda client, text, _: client.text_document_document_symbol_async(lsp.DocumentSymbolParams(text)),
    "code lenses": lambda client, text, _: client.text_document_code_lens_async(lsp.CodeLensParams(text)),
    "layout": lambda client, text, _: client.text_document_formatting_async(
        lsp.DocumentFormattingParams(text, lsp.FormattingOptions(2, True))
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--mark", type=float, default=50, help="milliseconds, which no median may exceed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        medians = asyncio.run(measured(Path(folder), long_policy(options.lines), options.times))
    return int(max(medians) > options.mark)


async def measured(folder: Path, text: str, times: int) -> list[float]:
    medians = []
    async with begun(folder) as client:
        client.opened(text)
        assert await client.problems() == []
        print(f"{text.count(chr(10)):,} lines; milliseconds, median and most of {times}")
        print("              after a key    a moment later")
        for name, question in QUESTIONS.items():
            found = [await _both(client, question, text, number) for number in range(times)]
            columns = list(zip(*found, strict=True))
            medians += map(statistics.median, columns)
            print(f"{name:12}", *(f"{statistics.median(each):7.1f} {max(each):6.1f}" for each in columns))
    return medians


async def _both(client: Client, question: Question, text: str, number: int) -> tuple[float, float]:
    """Type a blank somewhere, ask at once, and once more when the mistakes are marked."""
    middle = text.index('"read" if "viewer"', (number * 7919) % (len(text) - 5_000))
    place = lsp.Position(text.count("\n", 0, middle), 6)  # in the word, after the blanks
    client.changed(f"{text[:middle]}  {text[middle:]}")
    after = await _timed(client, question(client, lsp.TextDocumentIdentifier(URI), place))
    await client.problems()
    return after, await _timed(client, question(client, lsp.TextDocumentIdentifier(URI), place))


async def _timed(client: Client, asked: Awaitable[Any]) -> float:
    """Until the answer is there; what a client in Python takes to make objects of it comes after that."""
    client.read_at, started = 0.0, time.perf_counter()
    assert await asked is not None
    return (client.read_at - started) * 1000


if __name__ == "__main__":
    sys.exit(main())
