"""Command lines that are declared: what a program finds as its arguments, and how its run is bounded."""

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
from tests.waiting import until

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
"""Writes its own process id and that of a child that does not listen to SIGTERM, and stays."""


async def test_a_command_keeps_the_contract_of_a_source() -> None:
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
async def test_what_a_shell_would_act_on_arrives_as_text(text: str) -> None:
    assert await argv(["{text}"], TEXT, text=text) == [text]


async def test_no_argument_is_read_as_a_placeholder_again() -> None:
    schema = properties(one="string", two="string")
    assert await argv(["{one}{two}"], schema, one="{two} ${env:HOME}", two="$") == ["{two} ${env:HOME}$"]


WRITABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(WRITABLE, st.lists(WRITABLE, max_size=3))
@settings(max_examples=examples(20), deadline=None)
def test_a_program_finds_exactly_the_arguments_that_were_sent(text: str, texts: list[str]) -> None:
    schema = properties(text="string", texts="array")
    found = anyio.run(lambda: argv(["--", "{text}", "<{text}>", "{texts}"], schema, text=text, texts=texts))
    assert found == ["--", text, f"<{text}>", *texts]


async def test_numbers_and_objects_are_written_as_json_and_a_bare_list_is_spread() -> None:
    schema = properties(n="number", on="boolean", point="object", names="array")
    found = await argv(
        ["{n}", "{on}", "{point}", "{names}", "all={names}"], schema, n=1.5, on=True, point={"x": 1}, names=["a", 2]
    )
    assert found == ["1.5", "true", '{"x":1}', "a", "2", 'all=["a",2]']


async def test_an_element_whose_argument_is_not_there_is_left_out_whole() -> None:
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


async def test_an_argument_may_begin_with_a_dash_where_it_can_be_no_option() -> None:
    assert await argv(["--", "{text}"], TEXT, text="-rf") == ["--", "-rf"]
    assert await argv(["--name={text}", "./{text}"], TEXT, text="-rf") == ["--name=-rf", "./-rf"]
    allowed = await call(
        python("import sys; print(sys.argv[1])", "{text}", input_schema=TEXT, allow_options=True), text="-rf"
    )
    assert allowed.text == "-rf\n"


async def test_a_value_does_not_pass_for_the_end_of_the_options() -> None:
    schema = properties(one="array", two="string")
    with pytest.raises(InvalidArguments):
        await argv(["{one}", "{two}"], schema, one=["--"], two="-rf")


async def test_a_nul_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="NUL"):
        await argv(["x{text}"], TEXT, text="a\0b")


async def test_arguments_beyond_what_the_system_takes_are_refused() -> None:
    with pytest.raises(InvalidArguments, match="longer than the system allows for a command"):
        await argv(["{text}"], TEXT, text="x" * 5_000_000)


async def test_input_comes_from_the_template_and_is_closed_without_one() -> None:
    said = python("import sys; sys.stdout.write(sys.stdin.read().upper())", stdin="<{text}>", input_schema=TEXT)
    assert (await call(said, text="a\nü")).text == "<A\nÜ>"
    assert (await call(said)).content == ()
    assert (await call(python("import sys; print(repr(sys.stdin.read()))"))).text == "''\n"


async def test_a_program_that_reads_nothing_of_its_input_is_no_failure() -> None:
    result = await call(python("print('done')", stdin="{text}", input_schema=TEXT), text="x" * 1_000_000)
    assert (result.text, result.is_error) == ("done\n", False)


async def test_little_is_inherited_and_secrets_come_by_name() -> None:
    names = "import json, os; print(json.dumps(dict(os.environ)))"
    environ = {"PATH": os.environ["PATH"], "TOKEN": "t0p", "OTHER": "hidden", "LANG": "C.UTF-8", "UV_OFFLINE": "1"}
    source = source_of(python(names, env={"KEY": "is ${env:TOKEN}", "MODE": "${MODE:-plain}"}), environ=environ)
    found = json.loads((await call_of(source)).text)
    assert {"KEY": "is t0p", "MODE": "plain", "PATH": os.environ["PATH"]}.items() <= found.items()
    assert not {"TOKEN", "OTHER", "UV_OFFLINE"} & found.keys()


async def test_it_runs_in_its_folder(tmp_path: Path) -> None:
    where = python("import os; print(os.getcwd())", cwd="${env:PLACE}")
    assert (await call_of(source_of(where, environ={"PLACE": str(tmp_path)}))).text == f"{tmp_path}\n"
    with pytest.raises(ToolFailed, match="its working folder does not exist"):
        await call(python("", cwd=str(tmp_path / "gone")))


async def test_a_tool_whose_variable_is_not_set_is_set_aside_alone() -> None:
    source = source_of(python("", env={"KEY": "${env:NOWHERE}"}), python("print(1)"), environ={})
    listing = await source.list_tools()
    assert [tool.name for tool in listing.tools] == ["tool2"]
    assert [(aside.name, aside.reason) for aside in listing.set_aside] == [
        ("tool", "env.KEY: environment variable `NOWHERE` is not set")
    ]


async def test_another_exit_code_is_a_failure_with_what_was_said() -> None:
    failed = await call(python("import sys; print('half'); print('no disk', file=sys.stderr); sys.exit(3)"))
    assert failed.is_error
    assert failed.text == "The program ended with exit code 3.\nhalf\n\nno disk\n"
    killed = await call(python("import os; os.kill(os.getpid(), 9)"))
    assert (killed.text, killed.is_error) == ("The program was ended by signal 9.", True)


async def test_warnings_stand_after_the_answer() -> None:
    result = await call(python("import sys; print('fine'); print('old', file=sys.stderr)"))
    assert [block["text"] for block in result.content] == ["fine\n", "Standard error:\nold\n"]


async def test_what_program_is_not_there_is_told_in_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ToolFailed, match="its program is not installed") as failed:
        await call({"command": ["/opt/secret/nothing-4b1f"]})
    assert "nothing-4b1f" not in str(failed.value.to_wire())
    assert "the program `/opt/secret/nothing-4b1f` is not installed" in caplog.text


async def test_with_an_output_schema_the_output_is_read_as_json() -> None:
    results = {"type": "object", "properties": {"n": {"type": "integer"}}}
    answered = await call(python("print('{\"n\": 1}')", output_schema=results))
    assert answered.structured_content == {"n": 1}
    assert (await call(python("print('no json')", output_schema=results))).structured_content is None


async def test_bytes_that_are_no_text_are_replaced() -> None:
    assert (await call(python("import sys; sys.stdout.buffer.write(b'a\\xffb')"))).text == "a\ufffdb"


async def test_a_flood_of_output_is_cut_and_the_program_comes_to_its_end(tmp_path: Path) -> None:
    done = tmp_path / "done"
    flood = "import sys; sys.stdout.write('x' * 5_000_000); sys.stdout.flush(); open(sys.argv[1], 'w')"
    result = await call(python(flood, str(done)))
    assert len(result.text) < MAX_OUTPUT_BYTES + 100
    assert result.text.endswith("[4000000 more bytes were left out]")
    assert done.exists()


async def test_a_program_whose_time_is_over_is_stopped_with_its_children(tmp_path: Path) -> None:
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


async def test_a_program_is_over_though_a_child_holds_its_output(tmp_path: Path) -> None:
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
"""With what is said of each."""


@pytest.mark.parametrize(("command", "complaint"), WRONG)
def test_a_command_that_cannot_be_meant_is_refused_with_its_place(command: Any, complaint: str) -> None:
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
def test_an_interpreter_that_reads_its_program_reads_no_argument(command: Any, complaint: str) -> None:
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
def test_an_interpreter_with_a_program_may_read_arguments(command: Any) -> None:
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
def test_an_argument_never_becomes_code_by_standard_input(command: list[str]) -> None:
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
def test_an_argument_that_is_no_code_is_fine(command: list[str]) -> None:
    declared({"command": command, "input_schema": TEXT})


def test_a_batch_file_takes_no_arguments_since_a_shell_would_read_them() -> None:
    with pytest.raises(InvalidTool, match=r"command.0: on Windows a shell reads"):
        declared({"command": ["C:\\ops\\Run.BAT", "{text}"], "input_schema": TEXT})
    declared({"command": ["C:\\ops\\run.bat", "now"]})


def test_a_script_takes_arguments_behind_it_and_words_like_options_elsewhere_are_fine() -> None:
    declared({"command": ["sh", "-c", 'echo "$1"', "sh", "{text}"], "input_schema": TEXT})
    declared({"command": ["grep", "-e", "{text}", "-c", "notes.txt"], "input_schema": TEXT})


@pytest.mark.parametrize("cwd", ["here", "${env:PLACE}"])
async def test_a_folder_that_depends_on_where_toolcrib_runs_is_refused(cwd: str) -> None:
    source = source_of(python("", cwd=cwd), environ={"PLACE": "there"})
    assert [aside.reason for aside in source.listing.set_aside] == ["cwd: must be an absolute path, or begin with `~`"]


async def test_a_program_may_clean_up_before_it_is_stopped(tmp_path: Path) -> None:
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
