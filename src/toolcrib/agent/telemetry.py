"""OpenTelemetry traces and metrics: a span for each turn and each call, and counters for delivered tools.

They contain no messages, arguments or error texts. Without an SDK, nothing is recorded. The API is imported on first
use.

Source: semantic conventions for generative AI, "Inference" and "Execute tool span" (September 2026).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from toolcrib.agent.conversation.messages import ToolCall, Usage
from toolcrib.core.errors import ToolcribError
from toolcrib.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter
    from opentelemetry.trace import Span, Tracer
    from opentelemetry.util.types import AttributeValue

SCOPE = "toolcrib"
"""The name of the instrumentation scope."""

INJECTED = "toolcrib.tools.injected"
DYNAMIC = "toolcrib.disclosure.dynamic"
RESTARTS = "toolcrib.disclosure.restarts"

_VENDORS = {"openai-chat": "openai", "claude-agent": "anthropic"}
"""The provider names of the conventions, for adapters with a different name."""

_NAME_CHARS = 80
"""The length to which the name of a tool is cut, because a model may call any name."""


@contextmanager
def turn_span(provider: str, model: str) -> Generator[Callable[[Usage], None]]:
    """Trace one turn of a model, including retries. The yielded function records the cost. `provider` is an adapter's
    name."""
    told = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _VENDORS.get(provider, provider),
        "gen_ai.request.model": model,
    }
    with _span(f"chat {model}", told, is_remote=True) as span:

        def note(usage: Usage) -> None:
            span.set_attribute("gen_ai.usage.input_tokens", usage.input)
            span.set_attribute("gen_ai.usage.output_tokens", usage.output)
            span.set_attribute("gen_ai.usage.cache_read.input_tokens", usage.cached)

        yield note


@contextmanager
def call_span(call: ToolCall) -> Generator[Callable[[str], None]]:
    """Trace one call. The yielded function records the `error.type` of a failed call. Toolcrib's errors record their
    code."""
    name = call.name[:_NAME_CHARS]
    told = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call.id,
    }
    with _span(f"execute_tool {name}", told) as span:

        def fail(kind: str) -> None:
            _fail(span, kind)

        yield fail


def count_injected(tools: int, *, section: str, delivery: str, provider: str) -> None:
    """Count an expansion without a restart, and the tools that it made callable by name. `section` is empty for
    `expand_tool`."""
    about = {"section": section, "delivery": delivery, "provider": provider}
    _counter(DYNAMIC, "{expansion}", "Expansions without a restart of the evaluation.").add(1, about)
    if tools:
        _counter(INJECTED, "{tool}", "Tools delivered in the middle of a conversation.").add(tools, about)


def count_restart(*, provider: str) -> None:
    """Count a restart of an evaluation."""
    _counter(RESTARTS, "{restart}", "Evaluations that restarted with sections open.").add(1, {"provider": provider})


@contextmanager
def _span(name: str, told: Mapping[str, AttributeValue], *, is_remote: bool = False) -> Generator[Span]:
    from opentelemetry.trace import SpanKind  # noqa: PLC0415  it takes longer than all of `import toolcrib`

    kind = SpanKind.CLIENT if is_remote else SpanKind.INTERNAL
    # The text of an exception may quote messages.
    with _tracer().start_as_current_span(
        name, kind=kind, attributes=told, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except BaseException as error:
            _fail(span, error.code.value if isinstance(error, ToolcribError) else type(error).__name__)
            raise


def _fail(span: Span, kind: str) -> None:
    from opentelemetry.trace import StatusCode  # noqa: PLC0415  as above

    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)


@cache
def _tracer() -> Tracer:
    from opentelemetry.trace import get_tracer  # noqa: PLC0415  as above

    return get_tracer(SCOPE, VERSION)


@cache
def _counter(name: str, unit: str, description: str) -> Counter:
    from opentelemetry.metrics import get_meter  # noqa: PLC0415  as above

    return get_meter(SCOPE, VERSION).create_counter(name, unit, description)
