"""The summary that the catalog shows for a source."""

from __future__ import annotations

import pytest

from toolcrib.sources.base import server_summary


@pytest.mark.parametrize(
    ("instructions", "description", "summary"),
    [
        ("Reads notes.\nAnd more.", "A server", "Reads notes."),
        ("# Notes Server - Server Instructions\n\nReads notes of one person.", None, "Reads notes of one person."),
        ("# Notes Server - Server Instructions\n\nReads notes.", "Keeps notes.", "Keeps notes."),
        ("# Notes\n## Use", None, "Notes"),
        ("# Notes, by tools\nMore", None, "Notes, by tools"),
        (None, "Keeps notes.", "Keeps notes."),
        (" \n", None, ""),
    ],
)
def test_the_summary_of_a_server_is_its_first_sentence_or_else_its_title(
    instructions: str | None, description: str | None, summary: str
) -> None:
    assert server_summary(instructions, description) == summary
