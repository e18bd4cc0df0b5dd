"""What OpenTelemetry is told: a span of each turn of a model and of each call, and how often tools were brought in.

Nothing that was said or passed stands in it, nor the text of an error. Without an SDK nothing comes of it; its API is
imported when it is first used.

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
"""The instrumentation scope of all of it."""

INJECTED = "toolcrib.tools.injected"
DYNAMIC = "toolcrib.operations.dynamic"
RESTARTS = "toolcrib.operations.restarts"

_VENDORS = {"openai-chat": "openai", "claude-agent": "anthropic"}
"""What the conventions call a provider that an adapter has another name for."""

_NAME_CHARS = 80
"""Of the name of a tool: a model may call whatever it likes."""


@contextmanager
def turn_span(provider: str, model: str) -> Generator[Callable[[Usage], None]]:
    """One turn of a model, with all attempts at it; what is given takes its cost. `provider` is an adapter's name."""
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
    """One call; what is given takes the `error.type` of one whose answer says that it failed, the code of ours else."""
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
    """Reading `section`, or expanding with none, opened tools without a restart; so many under names of their own."""
    about = {"section": section, "delivery": delivery, "provider": provider}
    _counter(DYNAMIC, "{expansion}", "Expansions for which nothing had to begin anew.").add(1, about)
    if tools:
        _counter(INJECTED, "{tool}", "Tools brought in in the middle of a conversation.").add(tools, about)


def count_restart(*, provider: str) -> None:
    """An evaluation begins anew with sections open."""
    _counter(RESTARTS, "{restart}", "Evaluations begun anew with sections open.").add(1, {"provider": provider})


@contextmanager
def _span(name: str, told: Mapping[str, AttributeValue], *, is_remote: bool = False) -> Generator[Span]:
    from opentelemetry.trace import SpanKind  # noqa: PLC0415  it takes longer than all of `import toolcrib`

    kind = SpanKind.CLIENT if is_remote else SpanKind.INTERNAL
    # The text of an exception may quote what was said.
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
