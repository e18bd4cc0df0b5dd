"""Makes and caches the view of each principal until something that it shows changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Generator, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from toolcrib.catalog.access import EVERYTHING, Access, Permissions, Policy, Subject
from toolcrib.catalog.bundles import Contents
from toolcrib.catalog.catalog_state import CatalogState
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import NO_OVERLAY, Decisions, Overlay, QueryKnowledge, View, Visible
from toolcrib.core.principal import Principal

MAX_CACHED = 1_000
"""How many views are cached (each for one principal in one bundle), and how many visible parts (each for one set of
permissions). The entries that were used last stay."""


class ViewCache:
    """The views of all principals. Any thread can use it.

    Principals with equal permissions and without own tools share one `Visible`.
    """

    def __init__(self, registry: ToolRegistry, policy: Policy, knowledge: QueryKnowledge | None = None) -> None:
        self._registry = registry
        self._knowledge = knowledge
        self._turning = threading.Lock()
        """Held by a thread that begins an epoch. Readers do not wait for it."""
        self._epoch = _Epoch(policy, registry.state, knowledge)

    @property
    def policy(self) -> Policy:
        return self._epoch.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        with self._turning:
            self._epoch = _Epoch(policy, self._registry.state, self._knowledge)

    @contextmanager
    def turning_to(self, policy: Policy) -> Generator[None]:
        """Change to `policy` after a block that changes what the policy depends on.

        During the block, a principal can only do what both the old and the new policy allow. If the block fails, the
        old policy stays.
        """
        before = self.policy
        if policy == before:
            yield
            return
        self.policy = _Both(before, policy)
        try:
            yield
        except BaseException:
            self.policy = before
            raise
        self.policy = policy

    def of(self, principal: Principal, overlay: Overlay = NO_OVERLAY, within: tuple[Contents, ...] = ()) -> View:
        """Return what `principal` can see of the current catalog and `overlay`, limited by all bundles in `within`."""
        epoch = self._epoch
        # Read the state after the epoch. Otherwise it could be older than the epoch, and turn the epoch back.
        state = self._registry.state
        if epoch.state is not state:
            epoch = self._followed(epoch, state)
        return epoch.view(principal, overlay, within)

    def _followed(self, epoch: _Epoch, state: CatalogState) -> _Epoch:
        """Return an epoch for `state` that follows `epoch`. Do not store it if a different one has begun since."""
        new = _Epoch(epoch.policy, state, self._knowledge, epoch)
        with self._turning:
            if self._epoch is epoch:
                self._epoch = new
        return new


def permissions_within(permissions: Permissions, within: tuple[Contents, ...]) -> Permissions:
    """Return `permissions` limited by all these bundles."""
    for contents in within:
        permissions = contents.around(permissions)
    return permissions


@dataclass(frozen=True)
class _Both:
    one: Policy
    other: Policy

    def permissions(self, principal: Principal) -> _BothPermissions:
        return _BothPermissions(self.one.permissions(principal), self.other.permissions(principal))


@dataclass(frozen=True)
class _BothPermissions:
    one: Permissions
    other: Permissions

    def decide(self, subject: Subject) -> Access:
        return min(self.one.decide(subject), self.other.decide(subject))


class _Epoch:
    """The caches for one policy and one state. Entries of a different policy or state cannot get into them."""

    def __init__(
        self, policy: Policy, state: CatalogState, knowledge: QueryKnowledge | None, before: _Epoch | None = None
    ) -> None:
        """Make empty caches. `before` is an earlier epoch of the same policy.

        Only its decisions are reused. Its views would keep the whole old catalog in memory, for principals that may
        never come back.
        """
        self.policy = policy
        self.state = state
        self._knowledge = knowledge
        self._views: _Recent[tuple[Principal, tuple[Contents, ...]], View] = _Recent()
        self._shared: _Recent[Permissions, Visible] = _Recent()
        self._earlier: _Recent[Permissions, Decisions] = _Recent()
        if before is not None:
            for permissions, decisions in before.decisions():
                self._earlier.put(permissions, decisions)

    def view(self, principal: Principal, overlay: Overlay, within: tuple[Contents, ...]) -> View:
        view = self._views.get((principal, within))
        if view is None or view.visible.overlay is not overlay:
            permissions = permissions_within(self.policy.permissions(principal), within)
            visible = self._visible(permissions)
            if overlay is not NO_OVERLAY:
                visible = Visible(self.state, permissions, overlay, base=visible)
            view = View(visible, principal, self._knowledge)
            self._views.put((principal, within), view)
        return view

    def decisions(self) -> Iterator[tuple[Permissions, Decisions]]:
        """Yield the decisions of this and earlier epochs by permissions; those that were used last come last."""
        yield from self._earlier.items()
        for permissions, visible in self._shared.items():
            # Use `vars`, because reading the cached property would compute decisions that no request has needed.
            decisions: Decisions | None = vars(visible).get("decisions", visible.earlier)
            if decisions is not None:
                yield permissions, decisions

    def _visible(self, permissions: Permissions) -> Visible:
        visible = self._shared.get(permissions)
        if visible is None:
            earlier = self._earlier.get(permissions) if permissions is not EVERYTHING else None
            visible = Visible(self.state, permissions, earlier=earlier)
            self._shared.put(permissions, visible)
        return visible


KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class _Recent(Generic[KeyT, ValueT]):
    """A cache with the `MAX_CACHED` entries that were used last."""

    def __init__(self) -> None:
        self._entries: OrderedDict[KeyT, ValueT] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: KeyT) -> ValueT | None:
        with self._lock:
            value = self._entries.get(key)
            if value is not None:
                self._entries.move_to_end(key)
            return value

    def put(self, key: KeyT, value: ValueT) -> None:
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            if len(self._entries) > MAX_CACHED:
                self._entries.popitem(last=False)

    def items(self) -> list[tuple[KeyT, ValueT]]:
        """Return a copy of all entries, least recently used first."""
        with self._lock:
            return [*self._entries.items()]
