"""The documentation: its code runs, its lists are complete, its links lead somewhere."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from toolcrib.cli import main
from toolcrib.config import SETTINGS, SOURCE_SETTINGS, parse_config
from toolcrib.core.errors import ErrorCode
from toolcrib.protocol.tools import operation_tools

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FAULTY = ROOT / "tests" / "servers" / "faulty.py"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def test_the_readme_shows_the_library_example_as_it_stands() -> None:
    (shown,) = blocks(ROOT / "README.md", "python")
    assert shown == (ROOT / "examples" / "library.py").read_text()


def test_the_library_example_finds_expands_and_calls(tmp_path: Path) -> None:
    servers = {"faulty": {"command": sys.executable, "args": [str(FAULTY)]}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    example = ROOT / "examples" / "library.py"
    done = subprocess.run(
        [sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("functions.loan_fee {")
    assert second == "{'result': 4.5}"


def test_the_library_example_stays_under_twenty_lines() -> None:
    code = (ROOT / "examples" / "library.py").read_text()
    body = code[code.index("async def main") :]
    assert len([line for line in body.splitlines() if line.strip()]) < 20


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_python_on_a_page_compiles_and_its_imports_exist(path: Path) -> None:
    for code in blocks(path, "python"):
        compile(code, str(path), "exec")
        for line in code.splitlines():
            if line.startswith(("import ", "from ")):
                exec(line, {})


@pytest.mark.anyio
async def test_the_check_shown_for_a_source_of_your_own_passes() -> None:
    code = next(block for block in blocks(ROOT / "docs" / "sources.md", "python") if "check_source" in block)
    namespace: dict[str, object] = {}
    exec(code, namespace)
    await namespace["check"]()  # type: ignore[operator]  # pyright: ignore


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_json_on_a_page_parses(path: Path) -> None:
    for text in blocks(path, "json"):
        json.loads(text)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_on_a_page_lead_to_a_file(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_every_command_is_listed_with_what_it_says_of_itself() -> None:
    rows = page("commands.md")
    for name, command in main.commands.items():
        assert re.search(rf"\| `toolcrib {name}\b[^|]*` \| {re.escape(command.short_help or '')} \|", rows), name
    assert rows.count("| `toolcrib ") == len(main.commands)


def test_every_setting_is_listed_with_what_it_does() -> None:
    text = page("configuration.md")
    for key, meaning in SETTINGS.items():
        assert f"| `{key}` | {meaning} |" in text
    for key in SOURCE_SETTINGS:
        assert f"`{key}`" in text


def test_the_configuration_shown_is_read_without_complaint() -> None:
    (shown,) = blocks(ROOT / "docs" / "configuration.md", "json")
    config = parse_config(shown, Path("mcp.json"), {"TRACKER_TOKEN": "t"})
    assert [server.problem for server in config.servers] == [None, None, None]
    assert parse_config((ROOT / "examples" / "mcp.json").read_text(), Path("mcp.json"), {}).enabled


def test_every_error_code_is_listed_once() -> None:
    codes = re.findall(r"^\| `([A-Z_]+)` \|", page("errors.md"), re.MULTILINE)
    assert codes == [code.value for code in ErrorCode]


def test_every_operation_is_listed_with_its_arguments() -> None:
    text = page("gateway.md")
    for tool in operation_tools():
        line = next(line for line in text.splitlines() if line.startswith(f"- **{tool.name}**"))
        for argument in tool.input_schema["properties"]:
            assert argument in line, (tool.name, argument)
