"""Declared command lines: the arguments that a program receives, and the limits of its run."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.processes import is_running
from tests.sources.declared.declaring import argv, call, call_of, declared, properties, python, source_of
from tests.until import until

from toolcrib.core.errors import InvalidArguments, InvalidTool, ToolFailed
from toolcrib.sources.base import Source
from toolcrib.sources.program_run import MAX_OUTPUT_BYTES
from toolcrib.testing.sources import check_source

pytestmark = pytest.mark.anyio

TEXT = properties(text="string")

SAY_PIDS = """
import os, subprocess, sys, time
stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", stubborn])
with open(sys.argv[1] + ".new", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""
"""Writes its process id and the id of a child that ignores SIGTERM, and then waits."""


async def test_a_declared_command_passes_the_source_contract() -> None:
    def make() -> Source:
        return source_of(python("import sys; print(sys.argv[1])", "{text}", input_schema=TEXT))

    await check_source(make, tool="tool", arguments={"text": "one"}, other_arguments={"text": "two"})


@pytest.mark.parametrize(
    "text",
    [
        "; echo hacked",
        "$(touch hacked)",
        "`id`",
        "a && b | c > d",
        "two\nlines",
        "\"quotes' \\",
        "*",
        "~",
        "$HOME",
        "",
        "{x}",
        "ü 漢 🐙",
    ],
)
async def test_text_with_shell_syntax_arrives_unchanged(text: str) -> None:
    assert await argv(["{text}"], TEXT, text=text) == [text]


async def test_an_argument_value_is_not_expanded_as_a_placeholder() -> None:
    schema = properties(one="string", two="string")
    assert await argv(["{one}{two}"], schema, one="{two} ${env:HOME}", two="$") == ["{two} ${env:HOME}$"]


WRITABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(WRITABLE, st.lists(WRITABLE, max_size=3))
@settings(max_examples=examples(20), deadline=None)
def test_a_program_receives_exactly_the_arguments_that_were_sent(text: str, texts: list[str]) -> None:
    schema = properties(text="string", texts="array")
    found = anyio.run(lambda: argv(["--", "{text}", "<{text}>", "{texts}"], schema, text=text, texts=texts))
    assert found == ["--", text, f"<{text}>", *texts]


async def test_numbers_and_objects_are_written_as_json_and_a_list_is_spread() -> None:
    schema = properties(n="number", on="boolean", point="object", names="array")
    found = await argv(
        ["{n}", "{on}", "{point}", "{names}", "all={names}"], schema, n=1.5, on=True, point={"x": 1}, names=["a", 2]
    )
    assert found == ["1.5", "true", '{"x":1}', "a", "2", 'all=["a",2]']


async def test_an_element_with_a_missing_argument_is_omitted_whole() -> None:
    schema = properties(path="string", depth="integer", tags="array", wide={"type": "string", "default": "no"})
    line = ["ls", "{path}", ["--depth", "{depth}"], ["--tags", "{tags}"], "--wide={wide}"]
    assert await argv(line, schema) == ["ls", "--wide=no"]
    assert await argv(line, schema, path=None, depth=2, tags=[], wide=None) == ["ls", "--depth", "2", "--wide=no"]
    assert await argv(line, schema, path="/", tags=["a", "b"], wide="yes") == [
        "ls",
        "/",
        "--tags",
        "a",
        "b",
        "--wide=yes",
    ]


@pytest.mark.parametrize("value", ["-rf", "--output=/etc/passwd", "-"])
async def test_an_argument_that_a_program_could_read_as_an_option_is_refused(value: str) -> None:
    for line in (["{text}"], ["{text}/x"], [["-n", "{text}"]]):
        with pytest.raises(InvalidArguments, match="`text` must not begin with `-`") as refused:
            await argv(line, TEXT, text=value)
        assert refused.value.details["violations"][0]["place"] == "/text"
    with pytest.raises(InvalidArguments):
        await argv(["{names}"], properties(names="array"), names=["fine", value])


async def test_an_argument_may_begin_with_a_dash_where_it_cannot_be_an_option() -> None:
    assert await argv(["--", "{text}"], TEXT, text="-rf") == ["--", "-rf"]
    assert await argv(["--name={text}", "./{text}"], TEXT, text="-rf") == ["--name=-rf", "./-rf"]
    allowed = await call(
        python("import sys; print(sys.argv[1])", "{text}", input_schema=TEXT, allow_options=True), text="-rf"
    )
    assert allowed.text == "-rf\n"


async def test_an_argument_value_does_not_count_as_the_end_of_options() -> None:
    schema = properties(one="array", two="string")
    with pytest.raises(InvalidArguments):
        await argv(["{one}", "{two}"], schema, one=["--"], two="-rf")


async def test_a_nul_character_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="NUL"):
        await argv(["x{text}"], TEXT, text="a\0b")


async def test_arguments_longer_than_the_system_allows_are_refused() -> None:
    with pytest.raises(InvalidArguments, match="longer than the system allows for a command"):
        await argv(["{text}"], TEXT, text="x" * 5_000_000)


async def test_standard_input_comes_from_the_template_or_is_empty() -> None:
    said = python("import sys; sys.stdout.write(sys.stdin.read().upper())", stdin="<{text}>", input_schema=TEXT)
    assert (await call(said, text="a\nü")).text == "<A\nÜ>"
    assert (await call(said)).content == ()
    assert (await call(python("import sys; print(repr(sys.stdin.read()))"))).text == "''\n"


async def test_a_program_that_does_not_read_its_input_does_not_fail() -> None:
    result = await call(python("print('done')", stdin="{text}", input_schema=TEXT), text="x" * 1_000_000)
    assert (result.text, result.is_error) == ("done\n", False)


async def test_a_program_inherits_few_variables_and_gets_secrets_by_name() -> None:
    names = "import json, os; print(json.dumps(dict(os.environ)))"
    environ = {"PATH": os.environ["PATH"], "TOKEN": "t0p", "OTHER": "hidden", "LANG": "C.UTF-8", "UV_OFFLINE": "1"}
    source = source_of(python(names, env={"KEY": "is ${env:TOKEN}", "MODE": "${MODE:-plain}"}), environ=environ)
    found = json.loads((await call_of(source)).text)
    assert {"KEY": "is t0p", "MODE": "plain", "PATH": os.environ["PATH"]}.items() <= found.items()
    assert not {"TOKEN", "OTHER", "UV_OFFLINE"} & found.keys()


async def test_a_program_runs_in_its_configured_folder(tmp_path: Path) -> None:
    where = python("import os; print(os.getcwd())", cwd="${env:PLACE}")
    assert (await call_of(source_of(where, environ={"PLACE": str(tmp_path)}))).text == f"{tmp_path}\n"
    with pytest.raises(ToolFailed, match="its working folder does not exist"):
        await call(python("", cwd=str(tmp_path / "gone")))


async def test_only_the_tool_with_an_unset_variable_is_set_aside() -> None:
    source = source_of(python("", env={"KEY": "${env:NOWHERE}"}), python("print(1)"), environ={})
    listing = await source.list_tools()
    assert [tool.name for tool in listing.tools] == ["tool2"]
    assert [(aside.name, aside.reason) for aside in listing.set_aside] == [
        ("tool", "env.KEY: environment variable `NOWHERE` is not set")
    ]


async def test_a_nonzero_exit_code_is_a_failure_with_the_output() -> None:
    failed = await call(python("import sys; print('half'); print('no disk', file=sys.stderr); sys.exit(3)"))
    assert failed.is_error
    assert failed.text == "The program ended with exit code 3.\nhalf\n\nno disk\n"
    killed = await call(python("import os; os.kill(os.getpid(), 9)"))
    assert (killed.text, killed.is_error) == ("The program was ended by signal 9.", True)


async def test_standard_error_follows_the_output_in_the_answer() -> None:
    result = await call(python("import sys; print('fine'); print('old', file=sys.stderr)"))
    assert [block["text"] for block in result.content] == ["fine\n", "Standard error:\nold\n"]


async def test_the_name_of_a_missing_program_is_only_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ToolFailed, match="its program is not installed") as failed:
        await call({"command": ["/opt/secret/nothing-4b1f"]})
    assert "nothing-4b1f" not in str(failed.value.to_wire())
    assert "the program `/opt/secret/nothing-4b1f` is not installed" in caplog.text


async def test_with_an_output_schema_the_output_is_read_as_json() -> None:
    results = {"type": "object", "properties": {"n": {"type": "integer"}}}
    answered = await call(python("print('{\"n\": 1}')", output_schema=results))
    assert answered.structured_content == {"n": 1}
    assert (await call(python("print('no json')", output_schema=results))).structured_content is None


async def test_bytes_that_are_not_text_are_replaced() -> None:
    assert (await call(python("import sys; sys.stdout.buffer.write(b'a\\xffb')"))).text == "a\ufffdb"


async def test_a_too_long_output_is_cut_and_the_program_still_ends(tmp_path: Path) -> None:
    done = tmp_path / "done"
    flood = "import sys; sys.stdout.write('x' * 5_000_000); sys.stdout.flush(); open(sys.argv[1], 'w')"
    result = await call(python(flood, str(done)))
    assert len(result.text) < MAX_OUTPUT_BYTES + 100
    assert result.text.endswith("[4000000 more bytes were left out]")
    assert done.exists()


async def test_a_program_that_exceeds_its_time_limit_is_stopped_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    result = await call(python(SAY_PIDS, str(pids), timeout_s=5))
    assert result.is_error
    assert result.text == "The program was stopped, because it did not end within 5 s."
    await until(lambda: not any(is_running(int(pid)) for pid in pids.read_text().split()), "all are gone")


async def test_a_cancelled_call_stops_the_program_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: call(python(SAY_PIDS, str(pids))))
        await until(pids.exists, "the program runs")
        tasks.cancel_scope.cancel()
    await until(lambda: not any(is_running(int(pid)) for pid in pids.read_text().split()), "all are gone")


async def test_a_program_ends_even_if_a_child_holds_its_output_open(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    leaves = SAY_PIDS.rpartition("time.sleep")[0]
    result = await call(python(f"{leaves}print('over')", str(pids), timeout_s=600))
    assert (result.text, result.is_error) == ("over\n", False)
    await until(lambda: not any(is_running(int(pid)) for pid in pids.read_text().split()), "the child is gone")


WRONG: list[tuple[Any, str]] = [
    ("df -h", "command: must be a list"),
    ([], "command: must be a list"),
    (["{program}"], "command.0: must be the name of a program, without placeholders"),
    (["${env:PROGRAM}"], "command.0: must be the name of a program, without placeholders"),
    ([["df"]], "command.0: must be a string"),
    (["df", 1], "command.1: must be a string"),
    (["df", []], "command.1: must not be an empty list"),
    (["df", ["-h", "-l"]], "command.1: a nested list must contain an argument"),
    (["df", "{txt}"], r"command.1: `\{txt\}` is not a property of the input schema \(did you mean `\{text\}`\?\)"),
    (["df", "{text"], r"command.1: write a literal `\{` as `\{\{`"),
    (["df", "${text}"], r"command.1: `\$\{text\}` is not a placeholder"),
    (["curl", "-H", "Authorization: ${env:TOKEN}"], "command.2: environment variables are only allowed in `env`"),
    (["df", "a\0"], "command.1: must not contain a NUL"),
    (["sh", "-c", "echo {text}"], "command.2: `sh` would run the argument as a part of its code"),
    (["/bin/bash", "-lc", "--", "{text}"], "command.3: `bash` would run"),
    (["env", "bash", "-c", "ls {text}"], "command.3: `bash` would run"),
    (["CMD.EXE", "/c", "dir {text}"], "command.2: `cmd` would run"),
    (["PowerShell.exe", "-command", "ls {text}"], "command.2: `powershell` would run"),
    (["python3.11", "-cprint('{text}')"], "command.1: `python3.11` would run"),
    (["node", "--eval=f({text})"], "command.1: `node` would run"),
    (["cmd.exe", "/c", "type", "{text}"], "command.3: `cmd` would run"),
]
"""Commands, each with its error message."""


@pytest.mark.parametrize(("command", "complaint"), WRONG)
def test_an_invalid_command_is_refused_with_its_path(command: Any, complaint: str) -> None:
    with pytest.raises(InvalidTool, match=f"^ops.tool.{complaint}"):
        declared({"command": command, "input_schema": TEXT})


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (["sh"], "stdin: `sh` would run the argument"),
        (["bash", "-s", "first"], "stdin: `bash` would run"),
        (["/usr/bin/python3", "-u", "-", "first"], "stdin: `python3` would run"),
        (["env", "LANG=C", "perl", ["{file}"]], "stdin: `perl` would run"),
    ],
)
def test_an_interpreter_that_reads_its_program_from_stdin_gets_no_arguments_there(command: Any, complaint: str) -> None:
    schema = properties(text="string", file="string")
    with pytest.raises(InvalidTool, match=re.escape(complaint)):
        declared({"command": [*command, ["{file}"]], "stdin": "ls {text}", "input_schema": schema})


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "cat"],
        ["python3", "script.py", "-"],
        ["python3", "-mjson.tool"],
        ["node", "--eval=1"],
        ["perl", "-ne", "print"],
        ["jq", "."],
    ],
)
def test_an_interpreter_with_a_program_may_read_arguments_from_stdin(command: Any) -> None:
    declared({"command": command, "stdin": "{text}", "input_schema": TEXT})


RUN = [
    ["nodejs", "-e", "f({text})"],
    ["node", "--import={text}", "main.js"],
    ["pypy3", "-c", "{text}"],
    ["/usr/bin/python3.13t", "-Ic", "{text}"],
    ["mksh", "-c", "ls {text}"],
    ["bash", "-cx", "ls {text}"],
    ["sh", "-{text}", "ls"],
    ["nu", "-c", "ls {text}"],
    ["nu", "--commands={text}"],
    ["deno", "eval", "--ext=ts", "{text}"],
    ["bun", "-e", "{text}"],
    ["php8.2", "-r", "{text}"],
    ["php", "-B{text}"],
    ["ruby3.2", "-ne", "{text}"],
    ["perl", "-E", "{text}"],
    ["perl", "-M{text}", "script.pl"],
    ["lua5.4", "-e", "{text}"],
    ["R", "-e", "{text}"],
    ["Rscript", "-e", "{text}"],
    ["julia", "-E", "{text}"],
    ["osascript", "-e", "{text}"],
    ["pwsh", "-NoProfile", "-EncodedCommand", "{text}"],
    ["pwsh", "-ExecutionPolicy", "Bypass", "-c", "ls", "{text}"],
    ["powershell.exe", "ls {text}"],
    ["cmd", "/d/s/cdir {text}"],
    ["env", "-S", "{text}"],
    ["env", "--split-string=sh {text}"],
    ["env", "A=1", "python3", "-c", "{text}"],
    ["docker", "exec", "box", "python3", "-c", "{text}"],
    ["busybox", "sh", "-c", "ls {text}"],
    ["timeout", "5", "sh", "-c", "ls {text}"],
    ["xargs", "-n", "1", "sh", "-c", "ls {text}"],
    ["find", ".", "-exec", "sh", "-c", "ls {text}", ";"],
    ["awk", "{text}", "notes.txt"],
    ["gawk", "-F", ",", "{text}", "notes.txt"],
    ["nice", "-n", "5", "sed", "s/a/{text}/", "notes.txt"],
    ["sed", "-n", "-e", "{text}", "notes.txt"],
    ["ssh", "-p", "22", "host", "ls {text}"],
    ["ssh", "host", "ls", "{text}"],
    ["watch", "-n", "1", "df", "{text}"],
]


@pytest.mark.parametrize("command", RUN, ids=" ".join)
def test_an_argument_never_becomes_code(command: list[str]) -> None:
    with pytest.raises(InvalidTool, match="would run the argument as a part of its code"):
        declared({"command": command, "input_schema": TEXT})


@pytest.mark.parametrize(
    "command",
    [
        ["env", "{text}"],
        ["env", "A=1", "{text}"],
        ["timeout", "5", "{text}"],
        ["sudo", "-u", "ada", "{text}"],
        ["xargs", "{text}"],
        ["find", ".", "-exec", "{text}", ";"],
        ["npx", "-y", "{text}"],
        ["uvx", "{text}"],
        ["uv", "run", "{text}"],
        ["deno", "run", "{text}"],
    ],
    ids=" ".join,
)
def test_an_argument_never_names_the_program(command: list[str]) -> None:
    with pytest.raises(InvalidTool, match="would run the program that the argument names"):
        declared({"command": command, "input_schema": TEXT})


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "/dev/stdin"],
        ["python3", "-u", "/dev/stdin"],
        ["python3", "-i", "script.py"],
        ["tclsh"],
        ["nodejs", "-"],
        ["deno", "run", "-"],
        ["awk", "-f", "/dev/stdin", "notes.txt"],
        ["sed", "-nf/dev/stdin", "notes.txt"],
        ["ssh", "host"],
        ["xargs", "rm"],
    ],
    ids=" ".join,
)
def test_an_argument_never_becomes_code_through_standard_input(command: list[str]) -> None:
    with pytest.raises(InvalidTool, match=r"stdin: .* would run the argument as code, or split it into arguments"):
        declared({"command": command, "stdin": "{text}", "input_schema": TEXT})


@pytest.mark.parametrize(
    "command",
    [
        ["awk", "-v", "wanted={text}", "$1 == wanted", "notes.txt"],
        ["awk", "-F", "{text}", "1", "notes.txt"],
        ["sed", "-n", "1,5p", "{text}"],
        ["sed", "-e", "s/a/b/", "{text}"],
        ["find", "{text}", "-name", "*.py"],
        ["find", ".", "-exec", "grep", "-e", "{text}", ";"],
        ["env", "LANG={text}", "date"],
        ["timeout", "{text}", "date"],
        ["python3", "-B", "script.py", "{text}"],
        ["python3", "-m", "json.tool", "{text}"],
        ["powershell", "-ExecutionPolicy", "Bypass", "-File", "run.ps1", "{text}"],
        ["ssh", "-i", "key", "{text}", "uptime"],
        ["uvx", "ruff", "check", "{text}"],
        ["npm", "view", "{text}"],
        ["docker", "run", "image", "{text}"],
        ["tar", "r", "-e", "{text}"],
        ["grep", "awk", "{text}"],
    ],
    ids=" ".join,
)
def test_an_argument_that_is_not_code_is_accepted(command: list[str]) -> None:
    declared({"command": command, "input_schema": TEXT})


def test_a_batch_file_takes_no_arguments_because_a_shell_would_parse_them() -> None:
    with pytest.raises(InvalidTool, match=r"command.0: on Windows a shell reads"):
        declared({"command": ["C:\\ops\\Run.BAT", "{text}"], "input_schema": TEXT})
    declared({"command": ["C:\\ops\\run.bat", "now"]})


def test_arguments_after_a_script_and_option_like_words_are_accepted() -> None:
    declared({"command": ["sh", "-c", 'echo "$1"', "sh", "{text}"], "input_schema": TEXT})
    declared({"command": ["grep", "-e", "{text}", "-c", "notes.txt"], "input_schema": TEXT})


@pytest.mark.parametrize("cwd", ["here", "${env:PLACE}"])
async def test_a_relative_working_folder_is_refused(cwd: str) -> None:
    source = source_of(python("", cwd=cwd), environ={"PLACE": "there"})
    assert [aside.reason for aside in source.listing.set_aside] == ["cwd: must be an absolute path, or begin with `~`"]


async def test_a_cancelled_program_may_clean_up_before_it_is_stopped(tmp_path: Path) -> None:
    cleans = """
import signal, sys, time
def clean(*_):
    open(sys.argv[1], "w").close()
    sys.exit()
signal.signal(signal.SIGTERM, clean)
open(sys.argv[2], "w").close()
time.sleep(600)
"""
    cleaned, started = tmp_path / "cleaned", tmp_path / "started"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: call(python(cleans, str(cleaned), str(started))))
        await until(started.exists, "the program runs")
        tasks.cancel_scope.cancel()
    assert cleaned.exists()
