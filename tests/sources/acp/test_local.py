"""The agent's own tools: what they find, and that they stay inside the session's folders."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcrib.core.errors import StaleExpansion, ToolFailed
from toolcrib.core.principal import LOCAL_CONTEXT
from toolcrib.core.results import ToolResult
from toolcrib.core.threads import soon
from toolcrib.sources.acp import local
from toolcrib.sources.acp.descriptors import kind_of
from toolcrib.sources.acp.diffs import Location, locations_of
from toolcrib.sources.acp.local import LocalSource
from toolcrib.testing.sources import check_source

pytestmark = pytest.mark.anyio


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project folder, next to a folder with a secret."""
    root = tmp_path / "project"
    for path, text in {
        "src/main.py": "def main():\n    pass\n",
        "src/deep/util.py": "def util():\n    return main\n",
        "README.md": "# Main\n",
        ".git/config": "main\n",
        "node_modules/lib/index.js": "main\n",
    }.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.txt").write_text("main secret\n")
    return root


async def call(folders: Path | list[Path], name: str, /, **arguments: Any) -> ToolResult:
    source = LocalSource([folders] if isinstance(folders, Path) else folders)
    tool = next(tool for tool in (await source.list_tools()).tools if tool.name == name)
    assert not tool.arguments.violations(arguments)
    return await source.call_tool(tool, arguments, LOCAL_CONTEXT)


def below(folders: Path | list[Path], path: str) -> str:
    """Return `path` relative to the first folder."""
    return os.path.relpath(path, folders if isinstance(folders, Path) else folders[0])


async def found(folders: Path | list[Path], **arguments: Any) -> list[str]:
    """Return the found paths."""
    result = await call(folders, "find_files", **arguments)
    return [below(folders, path) for path in result.structured_content["paths"]]


async def lines(folders: Path | list[Path], **arguments: Any) -> list[tuple[str, int, str]]:
    """Return the found lines as (file, line number, text)."""
    result = await call(folders, "search_text", **arguments)
    matches = result.structured_content["matches"]
    return [(below(folders, match["path"]), match["line"], match["text"]) for match in matches]


async def test_a_local_source_passes_the_source_contract(root: Path) -> None:
    await check_source(
        lambda: LocalSource([root]),
        tool="read_file",
        arguments={"path": "README.md"},
        other_arguments={"path": "src/main.py"},
    )


async def test_all_local_tools_are_read_only(root: Path) -> None:
    tools = (await LocalSource([root]).list_tools()).tools
    assert [(tool.name, kind_of(tool)) for tool in tools] == [
        ("read_file", "read"),
        ("find_files", "search"),
        ("search_text", "search"),
    ]
    assert all(tool.annotations.read_only and not tool.metadata.requires_permission for tool in tools)


async def test_a_tool_with_a_changed_definition_is_not_run(root: Path) -> None:
    source = LocalSource([root])
    tool = replace((await source.list_tools()).tools[0], wire={})
    with pytest.raises(StaleExpansion):
        await source.call_tool(tool, {"path": "README.md"}, LOCAL_CONTEXT)


# Reading


async def test_a_file_is_read_by_relative_and_absolute_path(root: Path) -> None:
    for path in ("src/main.py", "src/deep/../main.py", str(root / "src" / "main.py")):
        result = await call(root, "read_file", path=path)
        assert result.text == "def main():\n    pass"
        assert result.structured_content["path"] == str(root / "src" / "main.py")
        assert locations_of(result) == (Location(str(root / "src" / "main.py")),)


async def test_reading_a_part_of_a_file_reports_the_lines_shown(root: Path) -> None:
    (root / "long").write_text("".join(f"line {number}\n" for number in range(1, 101)))
    result = await call(root, "read_file", path="long", line=99, limit=1)
    assert result.text == "line 99\n[lines 99 to 99 of 100]"
    assert locations_of(result) == (Location(str(root / "long"), 99),)
    beyond = await call(root, "read_file", path="long", line=200)
    assert beyond.text == "[the file has 100 lines]"


async def test_a_long_text_is_cut_and_marked_as_cut(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MAX_READ_CHARS", 10)
    result = await call(root, "read_file", path="src/main.py")
    assert result.structured_content["text"] == "def main()"
    assert result.structured_content["is_cut"]
    assert "only 10 characters are shown" in result.text


async def test_an_empty_file_is_reported_as_empty(root: Path) -> None:
    (root / "empty").touch()
    assert (await call(root, "read_file", path="empty")).text == "[The file is empty.]"


@pytest.mark.parametrize("data", [b"\x00\x01", b"text\x00", "text".encode("utf-16")])
async def test_a_file_that_is_not_text_is_refused(root: Path, data: bytes) -> None:
    (root / "binary").write_bytes(data)
    with pytest.raises(ToolFailed, match="is not a text file"):
        await call(root, "read_file", path="binary")


async def test_a_file_that_is_too_large_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MAX_FILE_BYTES", 5)
    with pytest.raises(ToolFailed, match="larger than the limit of 5 bytes"):
        await call(root, "read_file", path="README.md")


@pytest.mark.parametrize(
    ("path", "reason"), [("gone", "cannot be read: No such file"), ("src", "cannot be read|not a")]
)
async def test_a_missing_file_or_a_folder_is_refused(root: Path, path: str, reason: str) -> None:
    with pytest.raises(ToolFailed, match=reason):
        await call(root, "read_file", path=path)


async def test_a_named_pipe_is_refused_without_blocking(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(ToolFailed, match="is not a file"):
        await call(root, "read_file", path="pipe")
    assert await found(root, pattern="pipe") == []


# Staying inside


@pytest.mark.parametrize(
    "path",
    ["../secret/key.txt", "src/../../secret/key.txt", "/etc/hostname", "..", "/", "link/key.txt", "key", "hop/key.txt"],
)
async def test_a_file_outside_of_the_session_folders_is_not_read(root: Path, path: str) -> None:
    (root / "link").symlink_to(root.parent / "secret")
    (root / "hop").symlink_to("link")
    (root / "key").symlink_to("../secret/key.txt")
    with pytest.raises(ToolFailed, match="is outside of the folders"):
        await call(root, "read_file", path=path)


async def test_a_folder_whose_name_has_the_same_prefix_is_outside(root: Path) -> None:
    twin = root.parent / "project-secret"
    twin.mkdir()
    (twin / "key.txt").write_text("key")
    with pytest.raises(ToolFailed, match="is outside"):
        await call(root, "read_file", path=str(twin / "key.txt"))


@pytest.mark.parametrize("path", ["circle", "a\0b", "x" * 5000])
async def test_an_invalid_path_is_refused(root: Path, path: str) -> None:
    (root / "circle").symlink_to("circle")
    with pytest.raises(ToolFailed):
        await call(root, "read_file", path=path)


async def test_a_link_that_stays_inside_is_followed(root: Path) -> None:
    (root / "link").symlink_to("src")
    assert (await call(root, "read_file", path="link/main.py")).text.startswith("def main")


async def test_a_session_folder_may_be_a_symbolic_link(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root)
    assert (await call(link, "read_file", path="README.md")).text == "# Main"
    assert (await call(link, "read_file", path=str(link / "README.md"))).text == "# Main"


async def test_files_in_every_session_folder_can_be_read(root: Path) -> None:
    both = [root, root.parent / "secret"]
    assert (await call(both, "read_file", path=str(both[1] / "key.txt"))).text == "main secret"
    assert await found(both, pattern="*.txt") == ["../secret/key.txt"]


@pytest.mark.parametrize("tool", ["find_files", "search_text"])
async def test_a_search_neither_starts_outside_nor_follows_links_to_the_outside(root: Path, tool: str) -> None:
    (root / "link").symlink_to(root.parent / "secret")
    (root / "key.txt").symlink_to("../secret/key.txt")
    arguments = {"pattern": "key.txt"} if tool == "find_files" else {"query": "main secret"}
    result = await call(root, tool, **arguments)
    assert "found" in result.text
    assert "key.txt" not in result.text
    for path in ("..", "link", "/etc"):
        with pytest.raises(ToolFailed, match="is outside"):
            await call(root, tool, **arguments, path=path)


@pytest.mark.parametrize("tool", ["read_file", "find_files", "search_text"])
async def test_a_folder_that_is_swapped_for_a_link_while_it_is_opened_is_not_followed(
    root: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    folder, aside, link = root / "src", root / "old", root.parent / "link"
    link.symlink_to(root.parent / "secret")
    (root.parent / "secret" / "main.py").write_text("main of somewhere else")

    def swapping(real: Callable[..., Any]) -> Callable[..., Any]:
        def swap_do_and_swap_back(*args: Any, **options: Any) -> Any:
            folder.rename(aside)
            link.rename(folder)
            try:
                return real(*args, **options)
            finally:
                folder.rename(link)
                aside.rename(folder)

        return swap_do_and_swap_back

    monkeypatch.setattr(os, "open", swapping(os.open))
    monkeypatch.setattr(os, "scandir", swapping(os.scandir))
    match tool:
        case "read_file":
            with pytest.raises(ToolFailed, match="cannot be read"):
                await call(root, tool, path="src/main.py")
        case "find_files":
            assert "No file was found" in (await call(root, tool, pattern="*", path="src")).text
        case _:
            assert "somewhere else" not in (await call(root, tool, query="main", path="src")).text


@pytest.mark.parametrize("tool", ["read_file", "find_files", "search_text"])
async def test_a_path_longer_than_the_file_system_allows_is_refused(root: Path, tool: str) -> None:
    given = {"find_files": {"pattern": "*"}, "search_text": {"query": "main"}}.get(tool, {})
    for path in ("x" * 5_000, "x/" * 5_000):
        with pytest.raises(ToolFailed):
            await call(root, tool, path=path, **given)


# Finding


async def test_files_are_found_in_order_without_hidden_and_installed_files(root: Path) -> None:
    (root / "src" / ".hidden").mkdir()
    (root / "src" / ".hidden" / "x.py").touch()
    assert await found(root, pattern="*") == ["README.md", "src/deep/util.py", "src/main.py"]
    assert await found(root, pattern="*.py") == ["src/deep/util.py", "src/main.py"]
    assert await found(root, pattern="src/*.py") == ["src/main.py"]
    assert await found(root, pattern="deep/*", path="src") == ["src/deep/util.py"]
    assert await found(root, pattern="*", path="README.md") == ["README.md"]


async def test_a_search_without_matches_says_so_and_a_missing_folder_is_refused(root: Path) -> None:
    result = await call(root, "find_files", pattern="*.rs")
    assert (result.text, result.structured_content) == ("No file was found.", {"paths": [], "is_complete": True})
    with pytest.raises(ToolFailed, match="`gone` does not exist"):
        await call(root, "find_files", pattern="*", path="gone")


async def test_a_file_in_two_overlapping_session_folders_is_found_once(root: Path) -> None:
    assert await found([root, root / "src"], pattern="main.py") == ["src/main.py"]


async def test_the_number_of_found_files_is_limited_and_reported(root: Path) -> None:
    result = await call(root, "find_files", pattern="*", limit=2)
    assert len(result.structured_content["paths"]) == 2
    assert not result.structured_content["is_complete"]
    assert "[2 of 3 are shown]" in result.text


async def test_a_search_stops_after_a_number_of_entries_and_reports_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "MAX_WALKED", 3)
    result = await call(root, "find_files", pattern="*")
    assert "the search ended after 3 entries" in result.text
    assert not result.structured_content["is_complete"]


async def test_a_search_stops_after_its_time_limit_and_reports_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "SEARCH_S", -1.0)
    result = await call(root, "search_text", query="main")
    assert "the search ended after" in result.text
    assert not result.structured_content["is_complete"]


async def test_a_cancelled_search_ends(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_go_on, ended = anyio.Event(), threading.Event(), threading.Event()

    def endless(on_loop: Any, start: Path) -> Iterator[Path | None]:
        on_loop(begun.set)
        may_go_on.wait()
        try:
            while True:
                yield None
        finally:
            ended.set()

    async with anyio.create_task_group() as tasks:
        monkeypatch.setattr(local, "walk", partial(endless, soon()))
        monkeypatch.setattr(local, "MAX_WALKED", sys.maxsize)
        monkeypatch.setattr(local, "SEARCH_S", math.inf)
        tasks.start_soon(lambda: call(root, "find_files", pattern="*"))
        await begun.wait()
        tasks.cancel_scope.cancel()
    may_go_on.set()
    assert ended.wait(30)


# Searching


async def test_lines_are_found_by_a_literal_text(root: Path) -> None:
    assert await lines(root, query="main()") == [("src/main.py", 1, "def main():")]
    assert await lines(root, query="main") == [
        ("src/main.py", 1, "def main():"),
        ("src/deep/util.py", 2, "return main"),
    ]
    assert ("README.md", 1, "# Main") in await lines(root, query="main", ignores_case=True)


async def test_lines_are_found_by_a_regular_expression_in_matching_files(root: Path) -> None:
    assert await lines(root, query=r"^def \w+", is_regex=True, files="src/deep/*") == [
        ("src/deep/util.py", 1, "def util():")
    ]
    result = await call(root, "search_text", query="def util", path="src/deep")
    assert locations_of(result) == (Location(str(root / "src/deep/util.py"), 1),)


async def test_an_end_of_line_anchor_matches_before_any_line_ending(root: Path) -> None:
    (root / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    assert await lines(root, query="one$", is_regex=True) == [("dos.txt", 1, "one")]


async def test_an_invalid_regular_expression_is_refused(root: Path) -> None:
    with pytest.raises(ToolFailed, match="is not a valid pattern"):
        await call(root, "search_text", query="(", is_regex=True)


async def test_binary_files_are_skipped_and_large_files_are_skipped_with_a_note(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "binary").write_bytes(b"main()\0")
    (root / "large").write_text("main()" * 100)
    monkeypatch.setattr(local, "MAX_SEARCHED_BYTES", 500)
    result = await call(root, "search_text", query="main()")
    assert [match["line"] for match in result.structured_content["matches"]] == [1]
    assert "[1 files of more than 500 bytes were skipped]" in result.text


async def test_long_lines_are_cut_and_further_matches_are_reported(root: Path) -> None:
    (root / "a.txt").write_text(("x" * 1000 + "\n") * 5)
    result = await call(root, "search_text", query="xx", limit=2)
    assert [len(match["text"]) for match in result.structured_content["matches"]] == [300, 300]
    assert "[only the first 2 matches are shown]" in result.text
    nothing = await call(root, "search_text", query="nowhere")
    assert (nothing.text, nothing.structured_content["is_complete"]) == ("No line was found.", True)
