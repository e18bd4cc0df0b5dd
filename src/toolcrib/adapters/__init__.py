"""Adapters, one for each vendor; a vendor's SDK is imported when its adapter is made, and nowhere else."""

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
"""The module and the class of each, by the name that stands before the colon."""


def get_adapter(name: str, **options: Any) -> ProviderAdapter:
    """The adapter that `name` means, as `VENDOR:MODEL`: `openai:gpt-5.6`, `litellm:gemini/gemini-3-pro`.

    `options` are those of its class. What comes after the first colon is the model as the vendor names it; of
    `scripted`, the file of the script.

    Raises:
        InvalidConfig: no adapter is called so, it has no such option, the model is missing, or the vendor's SDK is not
            installed.
        ProviderFailed: the vendor asks for a key, and there is none.
    """
    vendor, _, model = name.partition(":")
    if vendor not in ADAPTERS:
        near = nearest(vendor, ADAPTERS)
        meant = f" Did you mean `{near}:{model or 'MODEL'}`?" if near else ""
        raise InvalidConfig(f"There is no adapter `{vendor}`; there are {', '.join(ADAPTERS)}.{meant}")
    if not model:
        raise InvalidConfig(f"`{name}` names no model: write `{vendor}:MODEL`.")
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
            raise InvalidConfig(f"The adapter `{vendor}` has no option `{option}`; it has {', '.join(known)}.{meant}")
