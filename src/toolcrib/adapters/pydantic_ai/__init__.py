"""A session as a toolset of Pydantic AI, for any of its agents and models."""

from toolcrib.adapters.pydantic_ai.by_hand import (
    create_pydantic_agent,
    create_toolset,
    create_toolset_from_capabilities,
    create_toolset_from_catalog,
    create_toolset_from_editor,
)
from toolcrib.adapters.pydantic_ai.model_script import scripted_model
from toolcrib.adapters.pydantic_ai.toolset import CribToolset

__all__ = [
    "CribToolset",
    "create_pydantic_agent",
    "create_toolset",
    "create_toolset_from_capabilities",
    "create_toolset_from_catalog",
    "create_toolset_from_editor",
    "scripted_model",
]
