"""Command output cannot control a terminal or imitate other lines."""

from __future__ import annotations

import datetime
import io
import logging
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from rich.table import Table

from toolcrib.cli import terminal_output

STRANGE = "a\x1b[31mred\x9b2J\u202e\u061c\nToolcrib: token of admin was accepted\r\nand more"


@contextmanager
def logging_to(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Replace standard error for the block and set up the logging of commands again."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    monkeypatch.setattr("sys.stderr", stream)
    root.handlers[:] = []
    try:
        terminal_output.set_up_logging(verbose=True)
        yield
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])


def lines_of(stream: io.StringIO) -> list[str]:
    return stream.getvalue().removesuffix("\n").split("\n")


def test_a_log_record_is_one_line_without_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    with logging_to(stream, monkeypatch):
        logging.getLogger("toolcrib.operations.calling").warning("%s: %s", "bench.saw", STRANGE)
    (line,) = lines_of(stream)
    assert "⟨U+001B⟩[31mred⟨U+009B⟩2J⟨U+202E⟩⟨U+061C⟩⏎Toolcrib: token of admin was accepted⏎and more" in line


def test_traceback_lines_cannot_look_like_log_records(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    with logging_to(stream, monkeypatch):
        try:
            raise ValueError(STRANGE)
        except ValueError:
            logging.getLogger("toolcrib").exception("it failed")
    first, *rest = lines_of(stream)
    assert "it failed" in first
    assert len(rest) >= 3
    assert all(line.startswith("  ") for line in rest)
    assert "\x1b" not in stream.getvalue()
    assert any("token of admin" in line for line in rest)


def test_a_log_line_has_a_time_and_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    with logging_to(stream, monkeypatch):
        logging.getLogger("toolcrib.surfaces").warning("a request from %r was refused", "127.0.0.1")
    (line,) = lines_of(stream)
    time, level, message = line.split(" ", 2)
    assert datetime.datetime.fromisoformat(time).tzinfo is not None
    assert (level, message) == ("WARNING", "a request from '127.0.0.1' was refused")


def test_table_lines_in_a_pipe_have_no_trailing_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("name", "what")
    table.add_row("a", "b")
    table.add_row("longer", "")
    terminal_output._WhenUsed(stderr=False).print(table, soft_wrap=False)  # pyright: ignore[reportPrivateUsage]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3
    assert [line for line in lines if line != line.rstrip()] == []
