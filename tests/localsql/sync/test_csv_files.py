"""CSV files that are not whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from localsql.sync.config import ConfigContext, PatternRefused, SourceFailed, config_from_text
from localsql.sync.sources import rows_of


def rows_in(path: Path, more: str = ""):
    entry = f"{{file: {path.name}{more}}}"
    text = f"facts: {{'p(User:_, Org:_)': {entry}}}\ndbs: {{app: {{type: csv, connection_string: {path.parent}}}}}"
    return rows_of(config_from_text(text, ConfigContext(Path())).patterns[0], False)


@pytest.mark.parametrize(
    ("text", "more", "says"),
    [
        ("who,org\nann,acme\nben,x,acme\n", "", "line 3 .* has 3 columns, but the header has 2"),
        ("who,org\nann\n", "", "line 2 .* has 1 column, but the header has 2"),
        ("ann,acme\nben,acme,x\n", ", header: false", "line 2 .* has 3 columns, but the first line has 2"),
    ],
)
def test_a_row_of_another_width_is_refused(tmp_path, text, more, says):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(PatternRefused, match=says):
        list(rows_in(path, more))


def test_a_file_that_is_written_while_it_is_read_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("who,org\nann,acme\n")
    rows = rows_in(path)
    assert next(rows) == ("ann", "acme")
    with path.open("a") as file:
        file.write("ben,acme\n")
    with pytest.raises(SourceFailed, match="changed while it was read"):
        list(rows)


def test_a_last_line_needs_no_end(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("who,org\nann,acme")
    assert list(rows_in(path)) == [("ann", "acme")]
