"""Runs a prompt from its first request to its final answer, including restarts."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import TypeVar

import anyio

from toolcrib.agent.conversation.events import EvaluationRestarted
from toolcrib.agent.loop.provider import (
    DEFAULT_CONFIG,
    InnerLoopConfig,
    PromptResponse,
    ProviderAdapter,
    TextListener,
    VisibilityExpansionRequired,
)
from toolcrib.agent.sections import Prompt, SetVisibilityOverride
from toolcrib.agent.session import Session
from toolcrib.agent.telemetry import count_restart
from toolcrib.core.errors import BudgetExceeded

logger = logging.getLogger(__name__)

OutputT = TypeVar("OutputT")


@dataclass(frozen=True)
class MainLoop:
    """Restarts an evaluation whenever a section opens whose tools cannot be delivered in the conversation.

    The session keeps all messages and results, so no call runs twice.

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
        """Return the final answer to `prompt`. Raises the errors of `ProviderAdapter.evaluate`, except restarts.

        Raises:
            BudgetExceeded: the evaluation restarted `max_restarts` times, or reached a different limit.
        """
        restarts, began_at = 0, time.monotonic()
        while True:
            try:
                config = self._config_after(time.monotonic() - began_at)
                return await adapter.evaluate(prompt, session=session, request=request, config=config, on_text=on_text)
            except VisibilityExpansionRequired as required:
                if restarts >= self.max_restarts:
                    raise BudgetExceeded(
                        f"The evaluation restarted {restarts} times without a final answer."
                    ) from required
                overrides = required.requested_overrides.items()
                session.dispatch(
                    *(SetVisibilityOverride(path, visibility) for path, visibility in overrides),
                    EvaluationRestarted(required.section_keys),
                )
                count_restart(provider=adapter.name)
                told = {"section_keys": required.section_keys, "reason": required.reason, "provider": adapter.name}
                logger.info(
                    "restarting the evaluation with these sections open: %s",
                    ", ".join(required.section_keys),
                    extra=told,
                )
                restarts += 1

    def _config_after(self, spent_s: float) -> InnerLoopConfig:
        """Return the remaining limits for all evaluations together. The session itself counts turns and tokens."""
        timeout_s = self.config.timeout_s
        return self.config if timeout_s is None else replace(self.config, timeout_s=max(0.0, timeout_s - spent_s))

    def execute_sync(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session,
        adapter: ProviderAdapter,
        request: str = "",
        on_text: TextListener | None = None,
    ) -> PromptResponse[OutputT]:
        """Run `execute` where no event loop is running. The method also enters and leaves the adapter."""

        async def main() -> PromptResponse[OutputT]:
            async with adapter:
                return await self.execute(prompt, session=session, adapter=adapter, request=request, on_text=on_text)

        return anyio.run(main)
