"""Spans and metrics that OpenTelemetry's SDK receives about conversations, and the content of logs."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import Any

import pytest
from tests.agent.loop.playing import INJECT, PROXY, RESTART, Watched, Way, plays, read
from tests.agent.loop.traced import PROMPT, SECRET, whispers

from toolcrib.agent.loop.main import MainLoop

Span = dict[str, Any]


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.agent.loop.traced"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout
    return json.loads(done.stdout)


def named(spans: list[Span], name: str) -> list[Span]:
    return [span for span in spans if span["name"] == name]


def test_each_model_turn_is_a_span_with_its_token_usage(told: dict[str, Any]) -> None:
    turns = named(told["spans"]["inject"], "chat script")
    assert [(span["kind"], span["status"]) for span in turns] == [("CLIENT", "UNSET")] * 3
    assert turns[0]["about"] == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "script",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 1,
        "gen_ai.usage.cache_read.input_tokens": 0,
    }


def test_each_call_is_a_span_with_the_name_that_the_model_called(told: dict[str, Any]) -> None:
    calls = [span for span in told["spans"]["inject"] if span["name"] != "chat script"]
    assert [(span["name"], span["kind"], span["status"]) for span in calls] == [
        ("execute_tool read_section", "INTERNAL", "UNSET"),
        ("execute_tool whisper", "INTERNAL", "UNSET"),
    ]
    assert calls[1]["about"] == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "whisper",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "3-0",
    }
    (mine,) = told["spans"]["by_hand"]
    assert (mine["name"], mine["about"]["gen_ai.tool.call.id"]) == ("execute_tool functions__whisper", "mine")


def test_a_failed_call_records_only_its_error_type(told: dict[str, Any]) -> None:
    calls = [span for span in told["spans"]["fails"] if span["name"] != "chat script"]
    failed = {span["about"]["gen_ai.tool.call.id"]: (span["status"], span["about"]["error.type"]) for span in calls}
    assert failed == {
        "id-0": ("ERROR", "TOOL_ERROR"),
        "id-1": ("ERROR", "TOOL_NOT_FOUND"),
        "id-2": ("ERROR", "INVALID_ARGUMENTS"),
        "id-3": ("ERROR", "INVALID_ARGUMENTS"),
    }
    assert {tuple(span["said"]) for span in calls} == {(None,)}
    assert max(len(span["name"]) for span in calls) < 100


def test_a_turn_span_covers_retries_and_has_the_last_error_type(told: dict[str, Any]) -> None:
    first, last = named(told["spans"]["fails"], "chat script")
    assert (first["status"], first["about"]["gen_ai.usage.cache_read.input_tokens"]) == ("UNSET", 4)
    assert (last["status"], last["about"]["error.type"], last["said"]) == ("ERROR", "PROVIDER_FAILED", [None])


def test_expansions_and_restarts_are_counted_by_delivery(told: dict[str, Any]) -> None:
    cave = {"section": "cave", "provider": "scripted"}
    counted = told["counts"]
    assert counted["toolcrib.tools.injected"] == [[cave | {"delivery": "inject"}, 1]]
    dynamic = sorted(counted["toolcrib.disclosure.dynamic"], key=str)
    assert dynamic == [[cave | {"delivery": "inject"}, 1], [cave | {"delivery": "proxy"}, 1]]
    assert counted["toolcrib.disclosure.restarts"] == [[{"provider": "scripted"}, 1]]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("way", "told"),
    [
        (
            INJECT,
            {
                "section": "cave",
                "tool_names": ("whisper",),
                "tool_count": 1,
                "delivery": "inject",
                "provider": "scripted",
            },
        ),
        (RESTART, {"section_keys": ("cave",), "provider": "scripted"}),
    ],
    ids=str,
)
async def test_the_log_of_an_opened_section_has_structured_fields(
    way: Way, told: dict[str, Any], watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolcrib.agent.loop")
    adapter = way.adapter(plays([read("cave")], whispers, "Done."))
    await MainLoop().execute(PROMPT, session=watched.session(), adapter=adapter)
    fields = [vars(record) for record in caplog.records if record.levelno == logging.INFO]
    assert [fields[0][key] for key in told] == [*told.values()]
    assert len(fields) == 1


@pytest.mark.anyio
async def test_tools_delivered_as_text_are_not_logged_as_injected(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolcrib.agent.loop")
    adapter = PROXY.adapter(plays([read("cave")], whispers, "Done."))
    await MainLoop().execute(PROMPT, session=watched.session(), adapter=adapter)
    assert not caplog.records


def test_opentelemetry_is_not_imported_before_the_first_turn() -> None:
    code = "import sys, toolcrib, toolcrib.agent.loop.main, toolcrib.agent.loop.inner; toolcrib.Toolcrib().session()"
    check = f"{code}; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", check], timeout=60, check=False).returncode == 0
