"""Checks of what strangers send against what strangers ask for: where that may take long, in a process of its own."""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any, cast
from weakref import WeakValueDictionary

import anyio
import orjson
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from toolcrib.core.principal import Principal
from toolcrib.core.schema import Schema, Violation, undecided, unexplained
from toolcrib.sources.declared.process import run_program

logger = logging.getLogger(__name__)

TIME_LIMIT_S = 10.0
"""How long such a process may take. It gets the processor last, so a busy machine needs more than the time it works."""

WAIT_LIMIT_S = 10.0
"""How long a check may wait for its turn."""

PLACES = 2
"""Such processes at once."""

_PROGRAM = "import os; getattr(os, 'nice', int)(19); from toolcrib.core.validator import main; main()"
"""Everything else goes first, also while it starts."""


async def violations_of(
    schema: Schema, value: object, principal: Principal, whole: str = "the arguments"
) -> tuple[Violation, ...]:
    """What is wrong with `value`; empty when it is valid. `whole` is what to call it."""
    found = schema.quick_violations(value, whole)
    return await violations_apart(schema, value, principal, whole) if found is None else found


async def violations_apart(
    schema: Schema, value: object, principal: Principal, whole: str = "the arguments"
) -> tuple[Violation, ...]:
    """The same, found out by a process of its own; for one principal there is one at a time.

    Where it ends without an answer, the one violation says so. A check that is cancelled ends its process before
    another one may start in its place.
    """
    turns = _turns()
    turn = turns.by_principal.setdefault(principal.id, anyio.Lock())
    with anyio.move_on_after(WAIT_LIMIT_S) as waiting:
        async with turn, turns.places:
            waiting.deadline = float("inf")
            return await _checked_apart(schema, value, whole)
    return (undecided(whole),)


async def _checked_apart(schema: Schema, value: object, whole: str) -> tuple[Violation, ...]:
    try:
        request = await to_thread.run_sync(_json, {"schema": schema.document, "value": value, "whole": whole})
    except (TypeError, ValueError, RecursionError) as error:
        return (Violation("", f"this is no JSON value: {error}", "type"),)
    match _read(await _written(request)):
        case [True, *_]:
            return ()
        case [False, *_, [_, *_] as found]:
            return tuple(map(_violation, cast("list[dict[str, Any]]", found)))
        case [False, *_]:
            return (unexplained(whole),)
        case _:
            return (undecided(whole),)


async def _written(request: bytes) -> bytes:
    """What the process wrote until it ended, or was ended: because its time was over, or the call was cancelled."""
    # No secret of this process goes there, and what it may import is what this one may.
    kept = {name: os.environ[name] for name in ("SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ}
    env = {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-s", "-c", _PROGRAM]
    try:
        # Not a thread that waits for it: a thread outlives a call that is cancelled, and the place would be free while
        # the process runs.
        run = await run_program(command, given=request, cwd=None, env=env, timeout_s=TIME_LIMIT_S)
    except OSError as error:
        logger.warning("a check of its own process could not be started: %s", error)
        return b""
    return run.stdout.data


def _read(written: bytes) -> list[Any]:
    """The lines that are whole."""
    return [json.loads(line) for line in written.splitlines(keepends=True) if line.endswith(b"\n")]


def _json(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # half a surrogate pair, or an integer beyond 64 bits
        return json.dumps(value).encode()


def _violation(told: dict[str, Any]) -> Violation:
    allowed = tuple(told.pop("allowed"))
    return Violation(**told, allowed=allowed)


class _Turns:
    def __init__(self) -> None:
        self.places = CapacityLimiter(PLACES)
        self.by_principal: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()


_of_this_run: RunVar[_Turns] = RunVar("toolcrib.operations.calling.validation")


def _turns() -> _Turns:
    try:
        return _of_this_run.get()
    except LookupError:
        _of_this_run.set(turns := _Turns())
        return turns
