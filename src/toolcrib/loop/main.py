"""A prompt from its first request to its final answer, whatever has to begin anew in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import anyio

from toolcrib.conversation.events import EvaluationRestarted
from toolcrib.core.errors import BudgetExceeded
from toolcrib.counter import Session
from toolcrib.loop.config import DEFAULT_CONFIG, InnerLoopConfig
from toolcrib.loop.provider import PromptResponse, ProviderAdapter, TextListener, VisibilityExpansionRequired
from toolcrib.sections import Prompt, SetVisibilityOverride

OutputT = TypeVar("OutputT")


@dataclass(frozen=True)
class MainLoop:
    """Begins an evaluation anew for as long as sections open that cannot be brought in otherwise.

    What was said and done before stays in the session, so no call is run twice.

    Source: dynamic tool registration, "Visibility Override Persistence".
    """

    max_restarts: int = 10
    config: InnerLoopConfig = DEFAULT_CONFIG

    async def execute(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session,
        adapter: ProviderAdapter,
        request: str = "",
        on_text: TextListener | None = None,
    ) -> PromptResponse[OutputT]:
        """The final answer to `prompt`; raises as `ProviderAdapter.evaluate` does, but for restarts.

        Raises:
            BudgetExceeded: it began anew `max_restarts` times, or used up another budget.
        """
        for _ in range(self.max_restarts + 1):
            try:
                return await adapter.evaluate(
                    prompt, session=session, request=request, config=self.config, on_text=on_text
                )
            except VisibilityExpansionRequired as required:
                for path, visibility in required.requested_overrides.items():
                    session.dispatch(SetVisibilityOverride(path, visibility))
                session.dispatch(EvaluationRestarted(required.section_keys))
                request = ""
        raise BudgetExceeded(f"It began anew {self.max_restarts} times without a final answer.")

    def execute_sync(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session,
        adapter: ProviderAdapter,
        request: str = "",
        on_text: TextListener | None = None,
    ) -> PromptResponse[OutputT]:
        """The same where no event loop is running; the adapter is entered and left."""

        async def main() -> PromptResponse[OutputT]:
            async with adapter:
                return await self.execute(prompt, session=session, adapter=adapter, request=request, on_text=on_text)

        return anyio.run(main)
