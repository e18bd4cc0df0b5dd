"""Capabilities of the system that tools can need: which are configured, which are available, when to check again."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anyio import from_thread, to_thread
from anyio.lowlevel import EventLoopToken

if TYPE_CHECKING:
    from toolcrib.catalog.capability_checks import Checker

logger = logging.getLogger(__name__)

_NOT_YET = "Toolcrib is still checking for it. Try again in a moment."
_FAILED = "checking for it failed"


@dataclass(frozen=True)
class Findings:
    """What is known about capabilities at one moment. An unknown capability counts as missing."""

    there: frozenset[str] = frozenset()
    """The names of the available capabilities."""
    lacking: Mapping[str, str] = field(default_factory=dict[str, str])
    """By the name of a missing capability, the reason and what to do. Any caller can read these sentences."""

    def why_not(self, names: Iterable[str]) -> str | None:
        """Return why a tool that needs these capabilities cannot be called; None if all are available."""
        missing = (name for name in names if name not in self.there)
        return " ".join(f"It needs `{name}`: {self.why_missing(name)}" for name in missing) or None

    def why_missing(self, name: str) -> str:
        """Return why the capability `name`, which is not available, is missing."""
        return self.lacking.get(name, "no capability with this name is configured.")


NO_FINDINGS = Findings()


@dataclass(frozen=True, slots=True)
class Capability:
    """Something that the system may or may not have, under the name by which tools require it."""

    name: str
    check: Checker
    remedy: str = ""
    """What to do if it is missing, in sentences that any caller can read."""
    lifetime_s: float = 60.0
    """How long it counts as available after it was found, in seconds."""
    missing_lifetime_s: float = 5.0
    """How long it counts as missing after it was not found, in seconds."""
    timeout_s: float = 5.0
    """How long a slow check can take before the capability counts as missing, in seconds."""

    def lack(self, reason: str) -> str:
        """Return `reason` and `remedy` as sentences."""
        texts = (" ".join(text.split()) for text in (reason, self.remedy))
        return " ".join(text if text.endswith((".", "!", "?")) else f"{text}." for text in texts if text)


class Capabilities:
    """The configured capabilities. They are checked only when a request looks at tools that need them.

    A quick check runs in the request. A slow check runs in its own thread: the capability is missing until the first
    answer, and keeps its last result while it is checked again. Any thread can use this object.
    """

    def __init__(self, publish: Callable[[Findings], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        """Make an empty set. `publish` receives the findings when they change; it must accept the same ones again."""
        self._publish = publish
        self._clock = clock
        self._lock = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._findings = NO_FINDINGS
        self._quiet: tuple[object, dict[frozenset[str], float]] = (None, {})
        """The needs of the catalog, and a time for each set of needs of a principal's own tools: no check is due before
        it. The pair is replaced when something happens earlier."""
        self.loop: EventLoopToken | None = None
        """The event loop on which findings of threads are published, because listeners may belong to it; or None."""

    def set_up(self, capabilities: Iterable[Capability]) -> None:
        """Set the capabilities. Of several with one name, the last counts. Unchanged ones keep their last result."""
        with self._lock:
            before, self._watched = self._watched, {}
            for capability in capabilities:
                known = before.get(capability.name)
                stays = known is not None and known.capability == capability
                self._watched[capability.name] = known if known is not None and stays else _Watched(capability)
            self._gather()
        self._publish_findings()

    def check(self, needing: Mapping[str, object], own: frozenset[str] = frozenset()) -> None:
        """Check needed capabilities whose last result has expired.

        `needing` has the names that the catalog needs, and must be the same object until they change. `own` are the
        names that one principal's own tools need.
        """
        if not needing and not own:
            return
        known_needs, until = self._quiet
        if known_needs is needing and self._clock() < until.get(own, -math.inf):
            return
        with self._lock:
            if self._quiet[0] is not needing:
                self._quiet = (needing, {})
            until = self._quiet[1]
            watched = [self._watched[name] for name in own.union(needing) if name in self._watched]
            due_at = min(map(self._attended, watched), default=math.inf)
            self._gather(quiet=until)
        self._publish_findings()
        until[own] = due_at  # after publishing: until then, no other thread may skip its check

    async def settled(self) -> None:
        """Wait for every check that runs for the first time, until its answer or its deadline."""
        with self._lock:
            awaited = [watched for watched in self._watched.values() if not watched.answered.is_set()]
        for watched in awaited:
            if (left_s := watched.answer_by - self._clock()) > 0:
                await to_thread.run_sync(watched.answered.wait, left_s, abandon_on_cancel=True)

    def _attended(self, watched: _Watched) -> float:
        """Check a capability if a check is due, and return when the next check is due."""
        now, capability = self._clock(), watched.capability
        if watched.deadline is not None:
            if now < watched.deadline:
                return watched.deadline
            watched.lack = capability.lack(f"checking for it takes longer than {capability.timeout_s:g} s")
            return math.inf  # its thread cannot be stopped; if it ever ends, it updates the result itself
        if now < watched.due_at:
            return watched.due_at
        if capability.check.is_quick:
            watched.take(_asked(capability), now)
            return watched.due_at
        watched.deadline = watched.answer_by = now + capability.timeout_s
        # A daemon thread, so that a check that hangs does not keep the program from ending.
        asking = threading.Thread(target=self._ask, args=(watched,), name=f"capability {capability.name}", daemon=True)
        try:
            asking.start()
        except RuntimeError:  # the system cannot start a thread
            logger.exception("checking for capability `%s` failed", capability.name)
            watched.take(_FAILED, now)
            return watched.due_at
        return watched.deadline

    def _ask(self, watched: _Watched) -> None:
        reason = _asked(watched.capability)
        with self._lock:
            watched.take(reason, self._clock())
            self._gather()
        try:
            if self.loop is not None:
                from_thread.run_sync(self._publish_findings, token=self.loop)
            else:
                self._publish_findings()
        except RuntimeError:
            logger.debug("the event loop has ended; the next request publishes the findings")
        finally:
            watched.answered.set()

    def _gather(self, quiet: dict[frozenset[str], float] | None = None) -> None:
        """Collect the findings. Without `quiet`, the next request checks everything that is due."""
        lacking = {name: watched.lack for name, watched in self._watched.items() if watched.lack is not None}
        findings = Findings(frozenset(self._watched.keys() - lacking.keys()), lacking)
        if findings != self._findings:
            self._findings = findings
        if quiet is None:
            self._quiet = (self._quiet[0], {})

    def _publish_findings(self) -> None:
        """Publish the findings, without the lock, because a listener can check again, in this or a different thread."""
        while True:
            findings = self._findings
            self._publish(findings)
            if findings is self._findings:
                return


class _Watched:
    """A capability and its last result. It only changes under the lock."""

    def __init__(self, capability: Capability) -> None:
        self.capability = capability
        self.lack: str | None = _NOT_YET
        """Why it is missing, and what to do; None if it is available."""
        self.due_at = -math.inf
        """When the next check is due."""
        self.deadline: float | None = None
        """The deadline of the running check; None if no check is running."""
        self.answer_by = -math.inf
        """The deadline of the last check that was started."""
        self.answered = threading.Event()
        """Set when the first answer is published."""

    def take(self, reason: str | None, now: float) -> None:
        capability = self.capability
        self.deadline = None
        if reason is None:
            self.lack, self.due_at = None, now + capability.lifetime_s
        else:
            self.lack, self.due_at = capability.lack(reason), now + capability.missing_lifetime_s


def _asked(capability: Capability) -> str | None:
    try:
        return capability.check.why_missing(capability.timeout_s)
    except (Exception, SystemExit):  # without this, a check that raises would never run again
        logger.exception("checking for capability `%s` failed", capability.name)
        return _FAILED
