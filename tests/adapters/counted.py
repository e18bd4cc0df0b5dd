"""A program with OpenTelemetry's SDK in which a Pydantic AI agent expands two tools and calls one.

It runs as a separate process, because OpenTelemetry providers are global.
"""

from __future__ import annotations

import json
import sys

import anyio
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.agent.loop.traced import counts, span_of

from toolcrib import Toolcrib
from toolcrib.adapters.pydantic_ai import create_pydantic_agent, create_toolset, scripted_model


def whisper(word: str) -> str:
    """Whispers."""
    return word


def shout(word: str) -> str:
    """Shouts."""
    return word.upper()


IDS = ["functions.whisper", "functions.shout"]

SCRIPT = [
    {"calls": [{"name": "find_tools", "arguments": {"query": "whisper"}}]},
    {"calls": [{"name": "expand_tool", "arguments": {"tool_ids": IDS}}]},
    {"calls": [{"name": "expand_tool", "arguments": {"tool_ids": IDS}}]},
    {"calls": [{"name": "functions__whisper", "arguments": {"word": "open-sesame"}}]},
    {"text": "Done."},
]


async def main() -> None:
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([reader]))
    crib = Toolcrib()
    crib.add(whisper)
    crib.add(shout)
    await create_pydantic_agent(scripted_model(SCRIPT), create_toolset(crib.session())).run("Go")
    json.dump({"spans": [span_of(span) for span in spans.get_finished_spans()], "counts": counts(reader)}, sys.stdout)


if __name__ == "__main__":
    anyio.run(main)
