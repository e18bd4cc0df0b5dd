"""Checks values against schemas, both untrusted. A check that may take long runs in a separate process."""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any, cast

import anyio
import orjson
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from toolcrib.core.principal import Principal
from toolcrib.core.schema import Schema, Violation, undecided, unexplained
from toolcrib.core.threads import KeyedLocks
from toolcrib.sources.program_run import run_program

logger = logging.getLogger(__name__)

TIME_LIMIT_S = 10.0
"""How long a check in a separate process can take, in seconds. The process has the lowest priority, so it takes longer
than its processor time on a busy machine."""

WAIT_LIMIT_S = 10.0
"""How long a check can wait for its turn, in seconds."""

PLACES = 2
"""How many such processes can run at once."""

_PROGRAM = "import os; getattr(os, 'nice', int)(19); from toolcrib.core.validator import main; main()"
"""The program lowers its own priority before the imports, so that its start does not slow down other processes."""


async def violations_of(
    schema: Schema, value: object, principal: Principal, whole: str = "the arguments"
) -> tuple[Violation, ...]:
    """Return what is wrong with `value`; nothing if it is valid. `whole` is the name of the value in messages."""
    found = schema.quick_violations(value, whole)
    return await violations_apart(schema, value, principal, whole) if found is None else found


async def violations_apart(
    schema: Schema, value: object, principal: Principal, whole: str = "the arguments"
) -> tuple[Violation, ...]:
    """Return what is wrong with `value`, found by a separate process. Each principal has at most one process at a time.

    If the process ends without an answer, the only violation says so. If the check is cancelled, its process ends
    before the next one can start.
    """
    with anyio.move_on_after(WAIT_LIMIT_S) as waiting:
        async with _turns.of(principal.id), _places():
            waiting.deadline = float("inf")
            return await _checked_apart(schema, value, whole)
    return (undecided(whole),)


async def _checked_apart(schema: Schema, value: object, whole: str) -> tuple[Violation, ...]:
    try:
        request = await to_thread.run_sync(_json, {"schema": schema.document, "value": value, "whole": whole})
    except (TypeError, ValueError, RecursionError) as error:
        return (Violation("", f"this is not a JSON value: {error}", "type"),)
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
    """Run the process, and return what it wrote until it ended or was killed at the time limit."""
    # The environment has no secrets of this process, but the same import path.
    kept = {name: os.environ[name] for name in ("SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ}
    env = {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-s", "-c", _PROGRAM]
    try:
        # Do not wait for it in a thread: a thread survives a cancelled call, so the next process could start while this
        # one still runs.
        run = await run_program(command, given=request, cwd=None, env=env, timeout_s=TIME_LIMIT_S)
    except OSError as error:
        logger.warning("cannot start the process that checks values: %s", error)
        return b""
    return run.stdout.data


def _read(written: bytes) -> list[Any]:
    """Return the values of all complete lines."""
    return [json.loads(line) for line in written.splitlines(keepends=True) if line.endswith(b"\n")]


def _json(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # half a surrogate pair, or an integer beyond 64 bits
        return json.dumps(value).encode()


def _violation(told: dict[str, Any]) -> Violation:
    allowed = tuple(told.pop("allowed"))
    return Violation(**told, allowed=allowed)


_turns = KeyedLocks()
"""The lock that lets a principal have one such process at a time."""

_places_of_this_run: RunVar[CapacityLimiter] = RunVar("toolcrib.operations.calling.validation")


def _places() -> CapacityLimiter:
    try:
        return _places_of_this_run.get()
    except LookupError:
        _places_of_this_run.set(places := CapacityLimiter(PLACES))
        return places
