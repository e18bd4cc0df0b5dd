"""The adapters, one for each model vendor. A vendor's SDK is only imported when its adapter is created."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from inspect import Parameter, signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from toolcrib.core.errors import InvalidConfig
from toolcrib.core.schema import nearest

if TYPE_CHECKING:
    from toolcrib.agent.loop.provider import ProviderAdapter

ADAPTERS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "anthropic": ("toolcrib.adapters.anthropic", "AnthropicAdapter"),
        "claude-agent": ("toolcrib.adapters.claude_agent", "ClaudeAgentAdapter"),
        "litellm": ("toolcrib.adapters.litellm", "LiteLLMAdapter"),
        "openai": ("toolcrib.adapters.openai_responses", "OpenAIResponsesAdapter"),
        "openai-chat": ("toolcrib.adapters.openai_chat", "OpenAIChatAdapter"),
        "scripted": ("toolcrib.adapters.scripted", "ScriptedAdapter"),
    }
)
"""The module and the class of each adapter, by the part of its name before the colon."""


def get_adapter(name: str, **options: Any) -> ProviderAdapter:
    """Create the adapter for `name`, such as `openai:gpt-5.6` or `litellm:gemini/gemini-3-pro`.

    The form of `name` is `VENDOR:MODEL`. `options` are the keyword arguments of its class. The part after the first
    colon is the vendor's name of the model. For `scripted`, it is the path of the script.

    Raises:
        InvalidConfig: the adapter does not exist, it has no such option, the model is missing, or the vendor's SDK is
            not installed.
        ProviderFailed: the vendor requires a key, and no key is set.
    """
    vendor, _, model = name.partition(":")
    if vendor not in ADAPTERS:
        near = nearest(vendor, ADAPTERS)
        meant = f" Did you mean `{near}:{model or 'MODEL'}`?" if near else ""
        raise InvalidConfig(f"Unknown adapter `{vendor}`. The adapters are: {', '.join(ADAPTERS)}.{meant}")
    if not model:
        raise InvalidConfig(f"`{name}` has no model. Write `{vendor}:MODEL`.")
    module, kind = ADAPTERS[vendor]
    made: Callable[..., ProviderAdapter] = getattr(import_module(module), kind)
    _check(vendor, options, made)
    return made(model, **options)


def _check(vendor: str, options: Iterable[str], made: Callable[..., ProviderAdapter]) -> None:
    known = [each.name for each in signature(made).parameters.values() if each.kind is Parameter.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            near = nearest(option, known)
            meant = f" Did you mean `{near}`?" if near else ""
            raise InvalidConfig(
                f"The adapter `{vendor}` has no option `{option}`. Its options are: {', '.join(known)}.{meant}"
            )
