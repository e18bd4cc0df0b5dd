"""The adapter for Claude through the program of the Claude Agent SDK. New tools restart the program, or are proxied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from toolcrib.adapters.claude_agent.program_start import ProgramSettings
from toolcrib.agent.loop.inner import InnerLoop
from toolcrib.agent.loop.provider import (
    DEFAULT_CONFIG,
    Delivery,
    InnerLoopConfig,
    PromptResponse,
    ProviderAdapter,
    TextListener,
    delivery_of,
)
from toolcrib.agent.sections import Prompt
from toolcrib.agent.session import Session
from toolcrib.core.errors import InvalidConfig

OutputT = TypeVar("OutputT")

DELIVERIES = (Delivery.RESTART, Delivery.PROXY)
"""The deliveries that work: the program reads the list of tools only once, when it starts."""

MAX_RESULT_CHARS = 490_000
"""The maximum length of a tool result. The program (2.1) writes longer results to a file that the model cannot read."""


class ClaudeAgentAdapter(ProviderAdapter):
    """Runs a separate program for each evaluation. The program's built-in tools are switched off."""

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
        """Create the adapter. Without a key, the program uses ANTHROPIC_API_KEY or the login on this machine.

        `env` overrides the environment and what the adapter sets in it. `program` replaces the SDK's own program.
        Without `cwd`, the program runs in an empty folder.

        Raises:
            InvalidConfig: the SDK is not installed, or the program does not support this delivery.
        """
        delivery = delivery_of(delivery)
        if delivery not in DELIVERIES:
            raise InvalidConfig(
                f"The Claude Agent SDK does not support the delivery `{delivery}`, because its program reads the list "
                f"of tools only once. Use {' or '.join(f'`{each}`' for each in DELIVERIES)}."
            )
        if find_spec("claude_agent_sdk") is None:
            raise InvalidConfig("The Claude Agent SDK is not installed. Run `pip install 'toolcrib[claude]'`.")
        self.model = model
        self._delivery = delivery
        self._settings = ProgramSettings(
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
        """Evaluate a prompt, see `ProviderAdapter`.

        The program itself retries failed requests, as often as `config` says.
        """
        # Imported here, because importing the SDK takes a second.
        from toolcrib.adapters.claude_agent.claude_program import Program  # noqa: PLC0415

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
        """Do nothing: each evaluation releases what it began."""
