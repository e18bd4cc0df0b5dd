"""The operations as an HTTP API: `POST /v1/OPERATION`, with the arguments in the body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.core.errors import InvalidArguments, NextAction, ToolcribError
from toolcrib.core.principal import CallContext, trace_id_of
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations.next_actions import answer_within, leading_within
from toolcrib.operations.operation_table import OPERATIONS
from toolcrib.surfaces.http.bodies import json_response, read_object
from toolcrib.surfaces.mcp_gateway.gateway_operations import asked_about
from toolcrib.surfaces.mcp_gateway.startup_wait import StartupWait

PREFIX = "/v1/"

BUNDLE = "bundle"
"""The key that every body may have in addition to the arguments of the operation."""


class OperationsApi:
    """Performs the operations of one crib. Errors are raised, and the application turns them into problem details."""

    def __init__(self, crib: Toolcrib, startup: StartupWait, exposed: Sequence[str] = OPERATIONS) -> None:
        """`exposed` lists the operations that have a route."""
        self._crib = crib
        self._startup = startup
        self._exposed = exposed

    def routes(self) -> list[Route]:
        """Return one route for each operation."""
        return [Route(f"{PREFIX}{name}", self._endpoint(name), methods=["POST"]) for name in self._exposed]

    def _endpoint(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                arguments = await read_object(request)
                return await _while_wanted(request, lambda: self._perform(name, arguments, request))
            except ClientDisconnect:
                return _CLIENT_GONE

        return answer

    async def _perform(self, name: str, arguments: Mapping[str, Any], request: Request) -> Response:
        bundle, arguments = _apart(arguments)
        trace_id = trace_id_of(request.headers.get("traceparent"))
        context = CallContext(request.state.principal, trace_id, bundle=bundle)
        await self._startup.wait(context.principal, asked_about(name, arguments))
        try:
            answer = await self._crib.perform(name, arguments, context=context)
        except ToolcribError as error:
            raise leading_within(error, self._exposed) from error
        return json_response(answer_within(answer, self._exposed).to_wire())


def _apart(body: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any]]:
    """Split a body into the bundle, if there is one, and the arguments of the operation."""
    bundle = body.get(BUNDLE)
    if bundle is not None and not isinstance(bundle, str):
        raise InvalidArguments(f"`{BUNDLE}` must be a string: the name of a bundle.", next_action=NextAction("list"))
    return bundle, {key: value for key, value in body.items() if key != BUNDLE}


_CLIENT_GONE = Response(status_code=499)
"""The response for a client that has disconnected. It is never sent."""


async def _while_wanted(request: Request, perform: Callable[[], Awaitable[Response]]) -> Response:
    """Return the response of `perform`, which is cancelled if the client disconnects."""
    response = _CLIENT_GONE
    failure: Exception | None = None

    async def end_with_client() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        waiting.cancel_scope.cancel()

    async with anyio.create_task_group() as waiting:
        waiting.start_soon(end_with_client)
        try:
            response = await perform()
        except Exception as error:  # noqa: BLE001  raised again outside the group, which would wrap it
            failure = error
        waiting.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return response
