"""What commands write: nothing in it is obeyed by a terminal or taken for something else."""

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
    """Standard error for the block, with the logging of commands set up anew."""
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


def test_what_a_stranger_wrote_is_one_line_of_the_log_without_controls(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    with logging_to(stream, monkeypatch):
        logging.getLogger("toolcrib.operations.calling").warning("%s: %s", "bench.saw", STRANGE)
    (line,) = lines_of(stream)
    assert "⟨U+001B⟩[31mred⟨U+009B⟩2J⟨U+202E⟩⟨U+061C⟩⏎Toolcrib: token of admin was accepted⏎and more" in line


def test_no_line_of_a_traceback_looks_like_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_line_of_the_log_has_its_time_and_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    with logging_to(stream, monkeypatch):
        logging.getLogger("toolcrib.surfaces").warning("a request from %r was refused", "127.0.0.1")
    (line,) = lines_of(stream)
    time, level, message = line.split(" ", 2)
    assert datetime.datetime.fromisoformat(time).tzinfo is not None
    assert (level, message) == ("WARNING", "a request from '127.0.0.1' was refused")


def test_no_line_of_a_table_in_a_pipe_ends_in_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("name", "what")
    table.add_row("a", "b")
    table.add_row("longer", "")
    terminal_output._WhenUsed(stderr=False).print(table, soft_wrap=False)  # pyright: ignore[reportPrivateUsage]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3
    assert [line for line in lines if line != line.rstrip()] == []
