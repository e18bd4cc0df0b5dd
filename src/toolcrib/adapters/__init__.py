"""Adapters, one for each vendor; a vendor's SDK is imported when its adapter is made, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from toolcrib.core.errors import InvalidConfig
from toolcrib.core.schema import nearest

if TYPE_CHECKING:
    from toolcrib.loop.provider import ProviderAdapter

ADAPTERS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "anthropic": ("toolcrib.adapters.anthropic", "Anthropic"),
        "claude-agent": ("toolcrib.adapters.claude_agent", "ClaudeAgentAdapter"),
        "litellm": ("toolcrib.adapters.litellm", "LiteLLMAdapter"),
        "openai": ("toolcrib.adapters.openai_responses", "OpenAIResponses"),
        "openai-chat": ("toolcrib.adapters.openai_chat", "OpenAIChat"),
        "scripted": ("toolcrib.adapters.scripted", "Scripted"),
    }
)
"""The module and the class of each, by the name that stands before the colon."""


def get_adapter(name: str, **options: Any) -> ProviderAdapter:
    """The adapter that `name` means, as `VENDOR:MODEL`: `openai:gpt-5.6`, `litellm:gemini/gemini-3-pro`.

    `options` are those of its class. What comes after the first colon is the model as the vendor names it; of
    `scripted`, the file of the script.

    Raises:
        InvalidConfig: no adapter is called so, the model is missing, or the vendor's SDK is not installed.
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
    return getattr(import_module(module), kind)(model, **options)
