"""One evaluation of a prompt: asks the model and runs its calls until it gives its final answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio

from toolcrib.agent.conversation.conversation import ConversationState
from toolcrib.agent.conversation.events import (
    Corrected,
    EvaluationBegan,
    EvaluationEnded,
    EvaluationRestarted,
    ModelAnswered,
    TurnDropped,
)
from toolcrib.agent.conversation.messages import AssistantMessage, ModelRequest, ModelTurn, Stop
from toolcrib.agent.loop.executor import ToolExecutor
from toolcrib.agent.loop.final_answer import NoOutput, OutputReader
from toolcrib.agent.loop.provider import (
    DEFAULT_CONFIG,
    Delivery,
    InnerLoopConfig,
    PromptResponse,
    ProviderAdapter,
    Responder,
    TextListener,
)
from toolcrib.agent.loop.toolbox import SessionCatalog, Toolbox, check_bound, check_operations
from toolcrib.agent.sections import Prompt
from toolcrib.agent.session import Session
from toolcrib.agent.telemetry import turn_span
from toolcrib.core.errors import BudgetExceeded, InvalidOutput, InvalidPrompt, ProviderFailed, ToolcribError

logger = logging.getLogger(__name__)

OutputT = TypeVar("OutputT")

FIRST_PAUSE_S = 0.5
LAST_PAUSE_S = 30.0
"""The pauses before a request is sent again. The first pause doubles up to the last, unless the provider sets one."""

MAX_PAUSE_S = 300.0
"""If a provider asks for a longer pause, the request fails."""

BEGIN = "Do what the prompt asks."
"""The request for the model if the caller gave none."""


class InnerLoop(Generic[OutputT]):
    """Runs one evaluation. Source: dynamic tool registration, "InnerLoop Tool Injection"."""

    def __init__(
        self,
        responder: Responder,
        prompt: Prompt[OutputT],
        session: Session,
        config: InnerLoopConfig,
        *,
        delivery: Delivery,
        reveals_unlisted: bool = False,
        on_text: TextListener | None = None,
        provider: str = "",
        model: str = "",
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        check_bound(prompt)
        check_operations(config.operations)
        self._responder = responder
        self._prompt = prompt
        self._session = session
        self._config = config
        self._on_text = on_text
        self._sleep = sleep
        is_dynamic = delivery is not Delivery.RESTART and config.supports_dynamic_tools is not False
        self._deadline = None if config.timeout_s is None else time.monotonic() + config.timeout_s
        self._toolbox = Toolbox(session, delivery if is_dynamic else Delivery.RESTART, reveals_unlisted)
        self._toolbox.register_tools(prompt, self._state.sections)
        self._catalog = SessionCatalog(session)
        self._source = provider, model  # for traces and metrics
        self._executor = ToolExecutor(
            session, prompt, self._toolbox, self._catalog, config, is_dynamic, self._deadline, provider
        )
        self._output = OutputReader(prompt.output_type)
        self._repairs = 0

    @property
    def _state(self) -> ConversationState:
        return self._session.conversation.state

    async def run(self, request: str = "") -> PromptResponse[OutputT]:
        """See `ProviderAdapter.evaluate`."""
        with self._session.conversation.taken():
            return await self._evaluate(request)

    async def _evaluate(self, request: str) -> PromptResponse[OutputT]:
        if self._state.system is None:
            self._begin(request)
        elif self._state.prompt != self._prompt_key:
            raise InvalidPrompt(
                f"The session is in the middle of `{self._state.prompt}`. Continue that prompt, or start a new session."
            )
        with anyio.move_on_after(_left_s(self._deadline)):
            if self._state.delivery != self._toolbox.delivery_key:
                await self._restart_for_delivery(request)
            return await self._until_final()
        raise BudgetExceeded("The evaluation reached its time limit.")

    async def _restart_for_delivery(self, request: str) -> None:
        """Restart if a different adapter with a different delivery left off here. Open calls are answered first."""
        if self._state.open_calls or self._state.pending:
            await self._executor.execute_all()
        self._session.dispatch(EvaluationRestarted(()))
        self._begin(request)

    async def _until_final(self) -> PromptResponse[OutputT]:
        while True:
            if self._state.open_calls or self._state.pending:
                await self._executor.execute_all()
                continue
            if (given := self._final()) is not None:
                return given
            self._check_budget()
            with turn_span(*self._source) as note:
                turn = await self._ask()
                note(turn.usage)
                if (failure := _failure(turn)) is not None:
                    self._session.dispatch(TurnDropped(turn.usage))
                    raise failure
            self._session.dispatch(ModelAnswered(turn.message, turn.usage))

    def _begin(self, request: str) -> None:
        rendered = self._prompt.render(self._state.sections, self._catalog)
        offers, collided = self._toolbox.initial_offers(self._prompt, rendered.tools, self._config.operations)
        last = self._state.messages[-1] if self._state.messages else None
        # After a restart, the conversation already contains the request and the work so far.
        is_asked = last is not None and (not isinstance(last, AssistantMessage) or bool(last.calls))
        system = "\n\n".join(part for part in (rendered.text, self._output.instruction) if part)
        asked = None if is_asked else request or BEGIN
        began = EvaluationBegan(system, offers, asked, self._prompt_key, self._toolbox.delivery_key)
        self._session.dispatch(began, *collided)

    @property
    def _prompt_key(self) -> str:
        template = self._prompt.template
        return f"{template.ns}/{template.key}"

    async def _ask(self) -> ModelTurn:
        state = self._state
        request = ModelRequest(state.system or "", self._toolbox.listed(state), state.messages, self._output.schema)
        for attempt in range(self._config.retries + 1):
            try:
                return _checked(await self._responder.respond(request, self._on_text))
            except ProviderFailed as error:
                pause_s = error.retry_after_s
                if pause_s is None:
                    pause_s = min(FIRST_PAUSE_S * 2**attempt, LAST_PAUSE_S)
                if not error.retryable or attempt == self._config.retries or pause_s > MAX_PAUSE_S:
                    raise
                logger.warning("%s Retrying in %g seconds.", error.message, pause_s)
                await self._sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    def _final(self) -> PromptResponse[OutputT] | None:
        """Return the response if the last turn is a valid final answer. If it is not valid, the model is told why."""
        state = self._state
        last = state.messages[-1] if state.messages else None
        if not isinstance(last, AssistantMessage) or last.calls:
            return None
        try:
            output = self._output.read(last.text)
        except NoOutput as error:
            if self._repairs >= self._config.repair_turns:
                raise InvalidOutput(
                    f"The final answer does not have the required type: {error}.",
                    details={"problems": [*error.problems]},
                ) from error
            self._repairs += 1
            told = "\n".join(f"- {problem}" for problem in error.problems)
            self._session.dispatch(
                Corrected(f"Your answer does not have the required form:\n{told}\nAnswer again, with JSON only.")
            )
            return None
        self._session.dispatch(EvaluationEnded(last.text))
        return PromptResponse(output, last.text, self._state.usage)

    def _check_budget(self) -> None:
        config, state = self._config, self._state
        if state.turns - state.turns_before >= config.max_turns:
            raise BudgetExceeded(
                f"The model gave no final answer within {config.max_turns} turn{'s' * (config.max_turns != 1)}."
            )
        spent = state.tokens - state.tokens_before
        if config.max_tokens is not None and spent >= config.max_tokens:
            raise BudgetExceeded(f"The limit of {config.max_tokens:,} tokens is reached: {spent:,} were used.")


def _failure(turn: ModelTurn) -> ToolcribError | None:
    """Return the error for a turn without a usable answer, else None."""
    if turn.message.calls:
        return None
    if turn.stop is Stop.REFUSED:
        return ProviderFailed(f"The model refused to answer: {turn.message.text[:200] or 'no reason given'}")
    if turn.stop is Stop.LENGTH:
        return BudgetExceeded("The answer was cut off, because it reached the provider's limit for one answer.")
    return None


def _checked(turn: ModelTurn) -> ModelTurn:
    """Return `turn`. Raises if two calls have the same id, because their answers could not be distinguished."""
    calls = turn.message.calls
    if len({call.id for call in calls}) < len(calls):
        raise ProviderFailed("The provider sent two calls with the same id in one turn.", retryable=True)
    return turn


def _left_s(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


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
