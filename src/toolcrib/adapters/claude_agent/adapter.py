"""Claude through the program that the Claude Agent SDK brings: sections with tools restart it, or are proxied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from toolcrib.adapters.claude_agent.settings import Settings
from toolcrib.agent.loop.config import DEFAULT_CONFIG, InnerLoopConfig
from toolcrib.agent.loop.inner import InnerLoop
from toolcrib.agent.loop.provider import Delivery, PromptResponse, ProviderAdapter, TextListener, delivery_of
from toolcrib.agent.sections import Prompt
from toolcrib.agent.session import Session
from toolcrib.core.errors import InvalidConfig

OutputT = TypeVar("OutputT")

DELIVERIES = (Delivery.RESTART, Delivery.PROXY)
"""The program reads the list of tools once, when it starts."""

MAX_RESULT_CHARS = 490_000
"""Of half a million the program makes a file, which the model cannot read (2.1)."""


class ClaudeAgentAdapter(ProviderAdapter):
    """Each evaluation has a program of its own, which ends with it; tools of the program itself are switched off."""

    name = "claude-agent"

    def __init__(
        self,
        model: str,
        *,
        delivery: Delivery = Delivery.RESTART,
        api_key: str | None = None,
        base_url: str | None = None,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        program: str | Path | None = None,
    ) -> None:
        """Without a key, the one in ANTHROPIC_API_KEY, or whoever has logged in with the program on this machine.

        `env` is laid over the environment, and over what is set here; `program` is another one than the SDK's own.
        Without `cwd` it runs in an empty folder.

        Raises:
            InvalidConfig: the SDK is not installed, or the program cannot bring in tools in that way.
        """
        delivery = delivery_of(delivery)
        if delivery not in DELIVERIES:
            raise InvalidConfig(
                f"The Claude Agent SDK cannot bring in tools by `{delivery}`, for its program reads the list of tools "
                f"once: take {' or '.join(f'`{each}`' for each in DELIVERIES)}."
            )
        if find_spec("claude_agent_sdk") is None:
            raise InvalidConfig("The Claude Agent SDK is not installed: `pip install 'toolcrib[claude]'`.")
        self.model = model
        self._delivery = delivery
        self._settings = Settings(
            model=model,
            api_key=api_key,
            base_url=base_url,
            cwd=None if cwd is None else Path(cwd),
            env=dict(env or {}),
            program=None if program is None else Path(program),
        )

    @property
    def delivery(self) -> Delivery:
        return self._delivery

    async def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session,
        request: str = "",
        config: InnerLoopConfig | None = None,
        on_text: TextListener | None = None,
    ) -> PromptResponse[OutputT]:
        """See `ProviderAdapter`. The program itself sends a request again that failed, as often as `config` says."""
        # It takes the SDK, which takes a second to import.
        from toolcrib.adapters.claude_agent.program import Program  # noqa: PLC0415

        given = config or DEFAULT_CONFIG
        async with Program(self._settings, given) as program:
            loop = InnerLoop(
                program,
                prompt,
                session,
                replace(given, retries=0, max_result_chars=min(given.max_result_chars, MAX_RESULT_CHARS)),
                delivery=self.delivery,
                on_text=on_text,
                provider=self.name,
                model=self.model,
            )
            return await loop.run(request)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Nothing is left to let go of: what an evaluation began ended with it."""
