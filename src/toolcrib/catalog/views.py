"""The view of each principal, made once for as long as nothing that it shows has changed."""

from __future__ import annotations

from toolcrib.catalog.access import EVERYTHING, Permissions, Policy
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import NO_OVERLAY, Overlay, View, Visible
from toolcrib.core.principal import Principal

MAX_KEPT = 1_000
"""Principals whose views are kept, and sets of permissions whose part of the catalog is."""


class Views:
    """Principals with equal permissions, and nothing of their own, share what they see."""

    def __init__(self, registry: ToolRegistry, policy: Policy) -> None:
        self._registry = registry
        self._policy = policy
        self._views: dict[Principal, View] = {}
        self._shared: dict[Permissions, Visible] = {}

    @property
    def policy(self) -> Policy:
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._policy = policy
        self._views, self._shared = {}, {}

    def of(self, principal: Principal, overlay: Overlay = NO_OVERLAY) -> View:
        """What `principal` may see of the catalog as it is now, and of what is its own."""
        view = self._views.get(principal)
        state = self._registry.state
        if view is not None and view.visible.state is state and view.visible.overlay is overlay:
            return view
        permissions = self._policy.permissions(principal)
        visible = self._visible(permissions) if overlay is NO_OVERLAY else Visible(state, permissions, overlay)
        if len(self._views) >= MAX_KEPT:
            self._views = {}
        self._views[principal] = view = View(visible, principal)
        return view

    def _visible(self, permissions: Permissions) -> Visible:
        state = self._registry.state
        before = self._shared.get(permissions)
        if before is not None and before.state is state:
            return before
        if len(self._shared) >= MAX_KEPT:
            self._shared = {}
        earlier = before.decisions if before is not None and permissions is not EVERYTHING else None
        self._shared[permissions] = visible = Visible(state, permissions, earlier=earlier)
        return visible
