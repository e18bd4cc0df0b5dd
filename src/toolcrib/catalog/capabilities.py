"""What the system offers that tools may need: what is set up, what is known of it, and when it is looked at again."""

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
    from toolcrib.catalog.checkers import Checker

logger = logging.getLogger(__name__)

_NOT_YET = "it is being looked for; ask again in a moment."
_FAILED = "looking for it failed"


@dataclass(frozen=True)
class Findings:
    """What is known of capabilities at one moment. One of which nothing is known is missing."""

    there: frozenset[str] = frozenset()
    """Names of those that the system has."""
    lacking: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why the others are missing and what to do about it, by name, in sentences that any caller may read."""

    def why_not(self, names: Iterable[str]) -> str | None:
        """Why a tool that needs these cannot be called; None where all are there."""
        missing = (name for name in names if name not in self.there)
        return " ".join(f"It needs `{name}`: {self.why_missing(name)}" for name in missing) or None

    def why_missing(self, name: str) -> str:
        """The same of one that is not there, whatever needs it."""
        return self.lacking.get(name, "no capability of this name is set up.")


NO_FINDINGS = Findings()


@dataclass(frozen=True, slots=True)
class Capability:
    """Something that the system offers or does not, under the name by which tools say that they need it."""

    name: str
    check: Checker
    remedy: str = ""
    """What to do where it is missing, in sentences that any caller may read."""
    lifetime_s: float = 60.0
    """For how long it is taken to be there once it was found."""
    missing_lifetime_s: float = 5.0
    """For how long it is taken to be missing once it was not."""
    timeout_s: float = 5.0
    """How long a check that is not quick may take before it counts as missing."""

    def lack(self, reason: str) -> str:
        """Why it is missing, and what to do about it, in sentences."""
        texts = (" ".join(text.split()) for text in (reason, self.remedy))
        return " ".join(text if text.endswith((".", "!", "?")) else f"{text}." for text in texts if text)


class Capabilities:
    """Those that are set up, looked at when somebody looks at tools that need them, and not before.

    What is quick is looked at on the spot. For the rest a thread is started: until its first answer a capability is
    missing, and while it is looked at again what was found before stands. Any thread may ask.
    """

    def __init__(self, publish: Callable[[Findings], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        """`publish` takes whatever is found, whenever that has become another; the same more than once does no harm."""
        self._publish = publish
        self._clock = clock
        self._lock = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._findings = NO_FINDINGS
        self._quiet: tuple[object, dict[frozenset[str], float]] = (None, {})
        """Until when nothing is to be done, by what one principal's own tools need besides what the catalog needs, for
        these needs of the catalog. Another pair takes its place where something happens before its time."""
        self.loop: EventLoopToken | None = None
        """Where what a thread found is published, if anywhere: whoever is told of it may live there."""

    def set_up(self, capabilities: Iterable[Capability]) -> None:
        """Have exactly these; of several with one name, the last. What is known of one that stays is kept."""
        with self._lock:
            before, self._watched = self._watched, {}
            for capability in capabilities:
                known = before.get(capability.name)
                stays = known is not None and known.capability == capability
                self._watched[capability.name] = known if known is not None and stays else _Watched(capability)
            self._gather()
        self._tell()

    def look(self, needing: Mapping[str, object], own: frozenset[str] = frozenset()) -> None:
        """See to it that what is known of what is needed is not out of date.

        `needing` has the names that the catalog needs, and is the same object as long as those are the same; `own` are
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
        self._tell()
        until[own] = due_at  # not before: nobody may look past what is not published yet

    async def settled(self) -> None:
        """Wait for the first answer of whatever is looked at for the first time, of each until its deadline."""
        with self._lock:
            awaited = [watched for watched in self._watched.values() if not watched.answered.is_set()]
        for watched in awaited:
            if (left_s := watched.answer_by - self._clock()) > 0:
                await to_thread.run_sync(watched.answered.wait, left_s, abandon_on_cancel=True)

    def _attended(self, watched: _Watched) -> float:
        """Have one looked at if it is time; when it will be time again."""
        now, capability = self._clock(), watched.capability
        if watched.deadline is not None:
            if now < watched.deadline:
                return watched.deadline
            watched.lack = capability.lack(f"looking for it takes longer than {capability.timeout_s:g} s")
            return math.inf  # its thread cannot be ended, and says so itself if it ever ends
        if now < watched.due_at:
            return watched.due_at
        if capability.check.is_quick:
            watched.take(_asked(capability), now)
            return watched.due_at
        watched.deadline = watched.answer_by = now + capability.timeout_s
        # A daemon: what hangs must not keep the program from ending.
        asking = threading.Thread(target=self._ask, args=(watched,), name=f"capability {capability.name}", daemon=True)
        try:
            asking.start()
        except RuntimeError:  # there is no thread to be had
            logger.exception("looking for `%s` failed", capability.name)
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
                from_thread.run_sync(self._tell, token=self.loop)
            else:
                self._tell()
        except RuntimeError:
            logger.debug("the event loop is gone; whoever looks next publishes what was found")
        finally:
            watched.answered.set()

    def _gather(self, quiet: dict[frozenset[str], float] | None = None) -> None:
        """Put together what is known; without `quiet`, whoever looks next looks at everything."""
        lacking = {name: watched.lack for name, watched in self._watched.items() if watched.lack is not None}
        findings = Findings(frozenset(self._watched.keys() - lacking.keys()), lacking)
        if findings != self._findings:
            self._findings = findings
        if quiet is None:
            self._quiet = (self._quiet[0], {})

    def _tell(self) -> None:
        """Publish what is known, without the lock: who is told may look again, here or in another thread."""
        while True:
            findings = self._findings
            self._publish(findings)
            if findings is self._findings:
                return


class _Watched:
    """A capability and what is known of it; changed under the lock alone."""

    def __init__(self, capability: Capability) -> None:
        self.capability = capability
        self.lack: str | None = _NOT_YET
        """Why it is missing and what to do about it; None where it is there."""
        self.due_at = -math.inf
        """When it is to be looked at again."""
        self.deadline: float | None = None
        """Until when the thread that looks at it may take; None where there is none."""
        self.answer_by = -math.inf
        """The last of those deadlines."""
        self.answered = threading.Event()
        """Set once a first answer is published."""

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
    except (Exception, SystemExit):  # a check that ends its thread would never be asked again
        logger.exception("looking for `%s` failed", capability.name)
        return _FAILED
