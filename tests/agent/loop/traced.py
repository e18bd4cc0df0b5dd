"""A program with OpenTelemetry's SDK in which models open sections and call tools; it prints the recorded telemetry.

It is a separate process, because providers are global and the MCP SDK would send traces to servers of other tests.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.agent.loop.playing import INJECT, PROXY, RESTART, Step, Way, by_name_or_handle, plays, read

from toolcrib import Toolcrib, ToolResult
from toolcrib.agent.conversation.messages import AssistantMessage, ModelRequest, ModelTurn, ToolCall, Usage
from toolcrib.agent.loop.main import MainLoop
from toolcrib.agent.loop.provider import InnerLoopConfig
from toolcrib.agent.sections import MarkdownSection, PromptTemplate, SectionVisibility
from toolcrib.core.errors import ProviderFailed

SECRET = "open-sesame"
"""Part of every message, argument, result and error."""


def whisper(word: str) -> str:
    """Whispers."""
    return f"{word}, {SECRET}"


def fail() -> ToolResult:
    """Fails."""
    return ToolResult({"content": [{"type": "text", "text": f"{SECRET} was not enough"}], "isError": True})


PROMPT = PromptTemplate[str](
    "tests",
    "traced",
    [
        MarkdownSection("Task", "task", f"Say {SECRET}.", tools=(fail,)),
        MarkdownSection("Cave", "cave", "Inside.", "A cave.", SectionVisibility.SUMMARY, tools=(whisper,)),
    ],
).bind()


def whispers(request: ModelRequest) -> Step:
    call = by_name_or_handle(request, "whisper", {"word": SECRET})
    assert call is not None
    return [call]


async def opens(way: Way) -> None:
    adapter = way.adapter(plays([read("cave")], whispers, f"Done, {SECRET}."))
    await MainLoop().execute(PROMPT, session=Toolcrib().session(), adapter=adapter, request=SECRET)


async def fails() -> None:
    """Run failing calls, a retried request, and a provider that fails in the end."""
    left = [False, True, False]

    def answer(request: ModelRequest) -> ModelTurn:
        is_first = not any(isinstance(message, AssistantMessage) for message in request.messages)
        if is_first and left.pop(0):
            names = ("fail", "{}"), (f"nothing{'-' * 200}", "{}"), ("fail", SECRET), ("read_section", "{}")
            calls = tuple(ToolCall(f"id-{at}", name, given) for at, (name, given) in enumerate(names))
            return ModelTurn(AssistantMessage("", calls), usage=Usage(10, 1, 4))
        raise ProviderFailed(f"no {SECRET}", retryable=is_first, retry_after_s=0)

    config = InnerLoopConfig(retries=1)
    with_calls = MainLoop(config=config).execute(
        PROMPT, session=Toolcrib().session(), adapter=INJECT.adapter(answer), request=SECRET
    )
    try:
        await with_calls
    except ProviderFailed:
        return
    raise AssertionError("the provider gave up")


async def by_hand() -> None:
    crib = Toolcrib()
    crib.add(whisper)
    session = crib.session()
    session.tools_for("openai", ["functions.whisper"])
    await session.handle([ToolCall("mine", "functions__whisper", json.dumps({"word": SECRET}))])


SCENES: dict[str, Callable[[], Awaitable[None]]] = {
    "inject": lambda: opens(INJECT),
    "proxy": lambda: opens(PROXY),
    "restart": lambda: opens(RESTART),
    "fails": fails,
    "by_hand": by_hand,
}


def span_of(span: ReadableSpan) -> dict[str, Any]:
    return {
        "name": span.name,
        "kind": span.kind.name,
        "status": span.status.status_code.name,
        "said": [span.status.description, *(event.name for event in span.events)],
        "about": dict(span.attributes or {}),
    }


def counts(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    found = defaultdict[str, list[Any]](list)
    data = reader.get_metrics_data()
    for resource in data.resource_metrics if data is not None else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    assert isinstance(point, NumberDataPoint)
                    found[metric.name].append([dict(point.attributes or {}), point.value])
    return found


async def main() -> None:
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([reader]))
    told: dict[str, Any] = {}
    for name, scene in SCENES.items():
        with trace.get_tracer("tests").start_as_current_span("scene"):
            await scene()
        told[name] = [span_of(span) for span in spans.get_finished_spans() if span.name != "scene"]
        (root,) = {span.context.trace_id for span in spans.get_finished_spans() if span.context is not None}
        assert root, "all of it happened within the scene"
        spans.clear()
    json.dump({"spans": told, "counts": counts(reader)}, sys.stdout)


if __name__ == "__main__":
    anyio.run(main)
