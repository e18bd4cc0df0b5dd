"""A base class for adapters that answer single turns. Toolcrib runs the loop."""

from __future__ import annotations

from typing import TypeVar

from toolcrib.agent.loop.config import DEFAULT_CONFIG, InnerLoopConfig
from toolcrib.agent.loop.inner import InnerLoop
from toolcrib.agent.loop.provider import PromptResponse, ProviderAdapter, Responder, TextListener
from toolcrib.agent.sections import Prompt
from toolcrib.agent.session import Session

OutputT = TypeVar("OutputT")


class TurnAdapter(ProviderAdapter, Responder):
    """An adapter for which a vendor only implements `respond`, `delivery` and the exit."""

    async def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session,
        request: str = "",
        config: InnerLoopConfig | None = None,
        on_text: TextListener | None = None,
    ) -> PromptResponse[OutputT]:
        """See `ProviderAdapter`."""
        loop = InnerLoop(
            self,
            prompt,
            session,
            config or DEFAULT_CONFIG,
            delivery=self.delivery,
            reveals_unlisted=self.reveals_unlisted,
            on_text=on_text,
            provider=self.name,
            model=self.model,
        )
        return await loop.run(request)
