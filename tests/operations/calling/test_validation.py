"""Validation that would take very long: it ends, does not block other work, and reports what it found."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from tests.catalogs import registry_of, tool, view_of
from tests.processes import is_running
from tests.until import DEADLINE_S, until

from toolcrib.catalog.access import Access, Rules
from toolcrib.catalog.view import View
from toolcrib.core.errors import InvalidArguments, NotAuthorized
from toolcrib.core.principal import LOCAL, CallContext
from toolcrib.core.schema import MAX_VIOLATIONS, Schema
from toolcrib.core.tools import Tool
from toolcrib.operations.calling import Runner, validation
from toolcrib.operations.calling.validation import violations_apart, violations_of
from toolcrib.operations.catalog_operations import Operations
from toolcrib.operations.dispatcher import Dispatcher

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

MEMORY_BYTES = 2_000_000_000
"""The limit of address space for an attacked process. Without bounds, these attacks need more."""

MIB = 1024 * 1024


def of(**properties: Any) -> Json:
    return {"type": "object", "properties": properties}


def chained(links: int) -> Json:
    link = {f"l{n}": {"items": {"allOf": 2 * [{"$ref": f"#/$defs/l{n + 1}"}]}} for n in range(links)}
    return {**of(n={"$ref": "#/$defs/l0"}), "$defs": {**link, f"l{links}": {"type": "string"}}}


def listed(times: int, inside: object) -> object:
    for _ in range(times):
        inside = [inside]
    return inside


def recursive() -> Json:
    branch = {"type": "object", "properties": {"n": {"$ref": "#/$defs/node"}}, "required": ["n"]}
    return {**of(n={"$ref": "#/$defs/node"}), "$defs": {"node": {"anyOf": [branch, {**branch, "title": "2"}]}}}


def bundled(real: Json, **applied: Any) -> Json:
    """A schema that applies definitions in a part with an `$id` of its own. Those at the root are harmless decoys."""
    part = {"$id": "http://b/", "$defs": real["$defs"], **applied}
    return {"type": "object", "$id": "http://a/", "$defs": {name: {} for name in real["$defs"]}, "allOf": [part]}


def linked(times: int, inside: object) -> object:
    for _ in range(times):
        inside = {"n": inside}
    return inside


def alternatives(count: int) -> Json:
    return of(n={"items": {"anyOf": [{"const": f"x{number}"} for number in range(count)]}})


LOOKING_BACK = of(n={"allOf": [{"not": {"pattern": f"(?<!x.)b{number}"}} for number in range(500)]})

ATTACKS: Mapping[str, tuple[Json, Json]] = {
    "a chain that doubles with each level": (chained(140), {"n": listed(140, 1)}),
    "a chain that doubles, and a value that matches": (chained(140), {"n": listed(140, "x")}),
    "alternatives that hold themselves": (recursive(), {"n": linked(200, 1)}),
    "alternatives that hold themselves, hidden by decoys": (
        bundled(recursive(), properties={"n": {"$ref": "#/$defs/node"}}),
        {"n": linked(200, 1)},
    ),
    "many alternatives of many values": (alternatives(1_500), {"n": ["x1499"] * 1_000_000}),
    "many values of a wrong type": (of(n={"items": {"type": "string"}}), {"n": [1] * 1_900_000}),
    "more values of a wrong type than a request holds": (of(n={"items": {"type": "string"}}), {"n": [1] * 4_000_000}),
    "patterns that look around": (LOOKING_BACK, {"n": "ab" * 100_000}),
    "very many alternatives": (alternatives(5_000), {"n": ["x4999"] * 1_000_000}),
}


HARMLESS = {"patterns that look around"}
"""Attacks whose value is valid, which can be found out in time."""


def takes(schema: Json) -> Tool:
    return Tool("files", "read", "Read.", input_schema=schema)


def gives(schema: Json) -> Tool:
    """A tool whose server returns its arguments."""
    return Tool("files", "read", "Read.", output_schema=schema)


# -- attacks, each in its own process ---------------------------------------------------------------------------------


async def _call(attacked: Tool, arguments: Json) -> str:
    """The text that the model receives about the call."""
    try:
        result = await Runner().call_tool(view_of(attacked), attacked.handle, arguments, CallContext(LOCAL))
    except InvalidArguments as error:
        return error.message
    return " ".join(result.warnings)


async def _list(arguments: Json) -> str:
    try:
        await Dispatcher(Operations(), Runner()).perform(view_of(takes(of())), CallContext(LOCAL), "list", arguments)
    except InvalidArguments as error:
        return error.message
    return ""


async def _under_attack(name: str, side: str) -> Json:
    schema, value = ATTACKS.get(name, ({}, {"path": [1] * 2_000_000}))
    longest_s, before = 0.0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = ""

    async with anyio.create_task_group() as tasks:

        async def work_on() -> None:
            """Stands for all other work: records the longest time that it was blocked."""
            nonlocal longest_s
            while True:
                began = time.thread_time()
                await anyio.sleep(0.001)
                longest_s = max(longest_s, time.thread_time() - began)

        tasks.start_soon(work_on)
        await anyio.sleep(0.01)
        if side == "operation":
            said = await _list(value)
        else:
            said = await _call(takes(schema) if side == "arguments" else gives(schema), value)
        await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"said": said, "longest_s": longest_s, "grew_mib": (after - before) / 1024}


def attacked(name: str, side: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    validation.TIME_LIMIT_S = 1.5
    sys.stdout.write(json.dumps(anyio.run(_under_attack, name, side)))


def under_attack(name: str, side: str) -> Json:
    program = f"from {__name__} import attacked; attacked({name!r}, {side!r})"
    command = [sys.executable, "-c", program]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ATTACKS)
def test_no_arguments_block_other_work_or_exhaust_memory(name: str) -> None:
    told = under_attack(name, "arguments")

    assert told["longest_s"] < 1
    assert told["grew_mib"] < 200
    if name not in HARMLESS:
        assert told["said"].endswith("Nothing ran.")


@pytest.mark.parametrize("name", ["alternatives that hold themselves", "many alternatives of many values"])
def test_no_answer_blocks_other_work_or_exhausts_memory(name: str) -> None:
    told = under_attack(name, "answer")

    assert told["longest_s"] < 1
    assert told["grew_mib"] < 200
    assert "the answer" in told["said"]


def test_no_operation_arguments_block_other_work_or_exhaust_memory() -> None:
    told = under_attack("a path", "operation")

    assert told["longest_s"] < 1
    assert told["grew_mib"] < 200
    assert told["said"]


# -- results ----------------------------------------------------------------------------------------------------------


async def test_a_large_valid_value_is_accepted() -> None:
    numbers = Schema(of(n={"type": "array", "items": {"type": "number"}}))
    assert await violations_of(numbers, {"n": [1.5] * 400_000}, LOCAL) == ()
    text = Schema(of(n={"type": "string", "maxLength": 10_000_000}))
    assert text.violations({"n": "a, b" * 1_000_000}) == ()


async def test_the_first_violation_of_a_large_value_is_reported_with_its_path() -> None:
    schema = Schema(of(n={"type": "array", "items": {"type": "string"}}))

    (wrong,) = await violations_of(schema, {"n": ["x"] * 200_000 + [1]}, LOCAL, "the answer")

    assert (wrong.place, wrong.keyword) == ("/n/200000", "type")
    assert wrong.message == "`/n/200000` must be string, not integer"


async def test_a_separate_process_reports_the_same_violations() -> None:
    schema = Schema({**of(mode={"enum": ["read", "write"]}, limit={"type": "integer"}), "required": ["limit"]})
    given = {"mode": "raed"}

    told = await violations_apart(schema, given, LOCAL)

    assert told == schema.violations(given)
    assert {each.nearest for each in told} == {"read", None}


async def test_a_separate_process_limits_the_number_of_violations() -> None:
    told = await violations_apart(Schema({"items": {"type": "string"}}), [1] * 100, LOCAL)

    assert len(told) == MAX_VIOLATIONS


@pytest.mark.parametrize("value", [{"n": "\ud800"}, {"n": 2**70}], ids=["half a pair", "a large integer"])
async def test_values_at_the_limits_of_json_are_validated_equally_in_a_separate_process(value: Json) -> None:
    for schema in (Schema(of(n={"type": "string"})), Schema(of(n={"type": "integer"}))):
        assert await violations_apart(schema, value, LOCAL) == schema.violations(value)


async def test_a_value_counts_as_invalid_if_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    (wrong,) = await violations_apart(Schema({}), {}, LOCAL)

    assert "against this schema would take too long" in wrong.message


async def test_a_process_that_takes_too_long_is_terminated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.operations.calling.validation.TIME_LIMIT_S", 0.001)

    (wrong,) = await violations_apart(Schema({}), {}, LOCAL)

    assert wrong.message == "checking the arguments against this schema would take too long"


async def test_a_separate_process_does_not_inherit_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONSTARTUP", "/nowhere")
    monkeypatch.setenv("TOKEN", "secret")
    seen: list[Mapping[str, str]] = []
    start = anyio.open_process

    async def noting(*args: Any, env: Mapping[str, str], **given: Any) -> Any:
        seen.append(env)
        return await start(*args, env=env, **given)

    monkeypatch.setattr(anyio, "open_process", noting)

    assert await violations_apart(Schema({}), {}, LOCAL) == ()
    assert [{"TOKEN", "PYTHONSTARTUP", "HOME", "PATH"} & env.keys() for env in seen] == [set()]


# -- cancellation ----------------------------------------------------------------------------------------------------


def checks_that_run() -> set[int]:
    """The child processes that validate a value."""
    return {
        child.pid
        for child in psutil.Process().children(recursive=True)
        if is_running(child.pid) and any("toolcrib.core.validator" in word for word in command_of(child))
    }


def command_of(process: psutil.Process) -> list[str]:
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return process.cmdline()
    return []


async def test_a_cancelled_call_ends_its_validation_process_before_the_next_one_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(validation, "TIME_LIMIT_S", DEADLINE_S)
    schema, value = ATTACKS["many alternatives of many values"]
    attack = Schema(schema)
    checked: set[int] = set()
    for _ in range(3):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(violations_apart, attack, value, LOCAL)
            await until(checks_that_run, "the check runs")
            running = checks_that_run()
            assert len(running) == 1
            assert not running & checked
            checked |= running
            tasks.cancel_scope.cancel()
        assert checks_that_run() == set()

    assert await violations_apart(Schema({}), {}, LOCAL) == ()


async def test_a_call_cancelled_while_waiting_starts_no_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "TIME_LIMIT_S", DEADLINE_S)
    schema, value = ATTACKS["many alternatives of many values"]
    attack = Schema(schema)
    async with anyio.create_task_group() as first:
        first.start_soon(violations_apart, attack, value, LOCAL)
        await until(checks_that_run, "the check runs")
        running = checks_that_run()
        async with anyio.create_task_group() as others:
            for _ in range(10):
                others.start_soon(violations_apart, attack, value, LOCAL)
            await anyio.wait_all_tasks_blocked()
            others.cancel_scope.cancel()
        assert checks_that_run() == running
        first.cancel_scope.cancel()
    assert checks_that_run() == set()


async def test_a_policy_change_during_validation_is_respected() -> None:
    numbers = tool("files.sum", "Sum.", properties={"n": {"type": "array", "items": {"type": "number"}}})
    state = registry_of(numbers).state

    def now(context: CallContext) -> View:
        return View.of(state, context.principal, policy=Rules((), Access.SEE))

    call = Runner(view_of=now).call_tool
    with pytest.raises(NotAuthorized):
        await call(View.of(state), numbers.handle, {"n": [1] * 200_000}, CallContext(LOCAL))
