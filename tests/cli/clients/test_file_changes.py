"""Files of other programs: a change replaces a whole file or nothing, and keeps mode, links and byte order mark."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from toolcrib.cli.clients.file_changes import MAX_LINE, PRIVATE, FileChange, FileSnapshot, check_writable, read, write
from toolcrib.core.errors import InvalidConfig


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (path := tmp_path / "settings.json").write_text('{"a": 1}\n')
    return path


def replaced(path: Path, text: str, mode: int | None = None) -> FileChange:
    before = read(path)
    return FileChange(before, before.encoded(text), mode)


def refused(change: FileChange | Path) -> InvalidConfig:
    with pytest.raises(InvalidConfig) as error:
        read(change) if isinstance(change, Path) else write(change)
    return error.value


def test_a_replaced_file_keeps_its_mode(file: Path) -> None:
    file.chmod(0o640)
    write(replaced(file, "{}\n"))
    assert file.read_text() == "{}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [path.name for path in file.parent.iterdir()] == ["settings.json"]


def test_a_private_file_gets_mode_600_whatever_its_mode_was(file: Path) -> None:
    file.chmod(0o664)
    write(replaced(file, "{}", PRIVATE))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    new = file.with_name("new.json")
    write(replaced(new, "{}", PRIVATE))
    assert stat.S_IMODE(new.stat().st_mode) == 0o600


def test_a_new_file_gets_the_mode_of_the_umask_and_its_parent_folders(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "mcp.json"
    before = read(path)
    assert before.data is None
    assert before.text == ""
    mask = os.umask(0o027)
    try:
        write(FileChange(before, b"{}"))
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_file_is_deleted_when_the_change_has_no_data(file: Path) -> None:
    write(FileChange(read(file), None))
    assert not file.exists()


def test_a_symlink_is_preserved_and_its_target_is_replaced(file: Path) -> None:
    first, second = file.with_name("first"), file.with_name("second")
    first.symlink_to(file.name)
    second.symlink_to(first)
    write(replaced(second, "{}"))
    assert file.read_text() == "{}"
    assert second.is_symlink()
    assert first.is_symlink()


def test_a_write_to_a_dangling_symlink_creates_its_target(tmp_path: Path) -> None:
    (link := tmp_path / "mcp.json").symlink_to(tmp_path / "dotfiles.json")
    write(replaced(link, "{}"))
    assert (tmp_path / "dotfiles.json").read_text() == "{}"
    assert link.is_symlink()


def test_a_byte_order_mark_is_skipped_on_reading_and_preserved_on_writing(file: Path) -> None:
    file.write_bytes('\ufeff{"a": 1}'.encode())
    assert read(file).text == '{"a": 1}'
    write(replaced(file, "{}"))
    assert file.read_bytes() == "\ufeff{}".encode()


def test_a_file_that_changed_since_it_was_read_is_not_overwritten(file: Path) -> None:
    change = replaced(file, "{}")
    file.write_text("somebody else's")
    error = refused(change)
    assert "changed while the command was running" in error.message
    assert "again" in error.hints[0]
    assert file.read_text() == "somebody else's"


def test_a_file_created_or_deleted_since_reading_is_not_overwritten(file: Path) -> None:
    gone, new = replaced(file, "{}"), replaced(file.with_name("new"), "{}")
    file.unlink()
    new.path.write_text("somebody else's")
    assert "changed while the command was running" in refused(gone).message
    assert "changed while the command was running" in refused(new).message
    assert not file.exists()
    assert new.path.read_text() == "somebody else's"


def test_a_file_is_unchanged_when_writing_it_fails(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left" in refused(replaced(file, "{}")).message
    assert file.read_text() == '{"a": 1}\n'
    assert [path.name for path in file.parent.iterdir()] == ["settings.json"]


def test_a_path_that_is_not_a_replaceable_file_is_refused(tmp_path: Path, file: Path) -> None:
    (loop := tmp_path / "loop").symlink_to(loop)
    os.mkfifo(pipe := tmp_path / "pipe")
    (huge := tmp_path / "huge").touch()
    os.truncate(huge, 65 * 1024 * 1024)
    (other := tmp_path / "other").hardlink_to(file)
    for path, complaint in {
        tmp_path: "not a file",
        pipe: "not a file",
        loop: "cannot be read",
        file / "below": "cannot be read",
        huge: "too large for a configuration (68,157,440 bytes)",
        other: "2 hard links",
    }.items():
        assert complaint in refused(path).message
        assert str(path) in refused(path).message


def test_a_file_that_is_not_utf8_is_refused(file: Path) -> None:
    file.write_bytes('{"a": "é"}'.encode("latin-1"))
    with pytest.raises(InvalidConfig, match="must be UTF-8 text"):
        _ = read(file).text


def test_a_read_only_file_is_refused_with_a_hint_at_symlink_targets(file: Path) -> None:
    file.chmod(0o444)
    (link := file.with_name("link.json")).symlink_to(file)
    with pytest.raises(InvalidConfig, match="the file is read-only"):
        check_writable(read(file))
    with pytest.raises(InvalidConfig) as error:
        check_writable(read(link))
    assert str(file) in error.value.hints[0]
    file.chmod(0o644)
    check_writable(read(link))


# -- diffs ------------------------------------------------------------------------------------------------------------


def diff(before: str | None, after: str | None) -> list[str]:
    path = Path("mcp.json")
    snapshot = FileSnapshot(path, path, None if before is None else before.encode())
    return FileChange(snapshot, None if after is None else after.encode()).diff()


def test_a_diff_shows_the_change_with_line_numbers_and_context() -> None:
    lines = [f"line {i}" for i in range(1, 101)]
    changed = [*lines[:49], "new", *lines[50:]]
    assert diff("\n".join(lines), "\n".join(changed)) == [
        "--- mcp.json",
        "+++ mcp.json",
        "@@ -47,7 +47,7 @@",
        " line 47",
        " line 48",
        " line 49",
        "-line 50",
        "+new",
        " line 51",
        " line 52",
        " line 53",
    ]


def test_a_diff_marks_a_side_without_a_file() -> None:
    assert diff(None, "{}\n") == ["--- (no file)", "+++ mcp.json", "@@ -0,0 +1 @@", "+{}"]
    assert diff("{}\n", None) == ["--- mcp.json", "+++ (no file)", "@@ -1 +0,0 @@", "-{}"]


def test_a_diff_of_one_long_line_is_shortened_to_the_changed_part() -> None:
    long = "x" * 10 * MAX_LINE
    shown = diff(long + '"a"' + long, long + '"b"' + long)
    assert all(len(line) < MAX_LINE for line in shown)
    assert '"a"' in shown[3]
    assert '"b"' in shown[4]
    (added,) = [line for line in diff("{", "{\n" + long) if line.startswith("+x")]
    assert "more characters" in added


def test_a_diff_of_a_large_file_shows_only_the_changed_lines() -> None:
    lines = ["the same"] * 300_000
    shown = diff("\n".join(lines), "\n".join([*lines[:150_000], "new", *lines[150_000:]]))
    assert len(shown) == 10
