"""How long views are cached, for which principals, and that a change of the policy discards them."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterable

import pytest
from tests.catalogs import registry_of, tool, view_of

from toolcrib.catalog import view_cache as module
from toolcrib.catalog.access import ALLOW_ALL, EVERYTHING, Access, Permissions, Policy, Rule, Rules
from toolcrib.catalog.catalog_state import CatalogState
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view_cache import ViewCache
from toolcrib.core.principal import Principal
from toolcrib.search.index.history import Confirmed, History
from toolcrib.search.index.query import Query

ADA, EVE = Principal("ada"), Principal("eve")

NOTHING = Rules((), Access.HIDDEN)


class Slow:
    """Allows everything as soon as `let` is set."""

    def __init__(self) -> None:
        self.asked, self.let = threading.Event(), threading.Event()

    def permissions(self, principal: Principal) -> Permissions:
        self.asked.set()
        assert self.let.wait(30)
        return EVERYTHING


@pytest.mark.parametrize("changes", [False, True], ids=["the same catalog", "a changed one"])
def test_a_view_computed_under_a_replaced_policy_is_not_cached(changes: bool) -> None:
    registry, slow = registry_of(tool("pay.transfer")), Slow()
    views = ViewCache(registry, slow)
    if changes:
        registry.register(tool("git.log"))
    asking = threading.Thread(target=views.of, args=(EVE,))
    asking.start()
    assert slow.asked.wait(30)
    views.policy = NOTHING
    slow.let.set()
    asking.join(30)

    assert views.policy is NOTHING
    assert dict(views.of(EVE).tools) == {}


class Interrupted(ToolRegistry):
    """Calls `meanwhile` when its state is read."""

    meanwhile: Callable[[], None] | None = None

    @property
    def state(self) -> CatalogState:
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            happens()
        return super().state


def test_a_policy_set_while_a_changed_catalog_is_read_is_not_lost() -> None:
    registry = Interrupted()
    views = ViewCache(registry, ALLOW_ALL)
    registry.register(tool("pay.transfer"))

    def tighten() -> None:
        views.policy = NOTHING
        registry.register(tool("pay.refund"))

    registry.meanwhile = tighten
    views.of(EVE)

    assert views.policy is NOTHING
    assert dict(views.of(EVE).tools) == {}


def test_an_outdated_catalog_state_is_not_retained_by_any_view() -> None:
    registry = registry_of(tool("git.log"), tool("git.push"))
    views = ViewCache(registry, Rules((Rule(Access.CALL, tools=("git.l*",)),), Access.HIDDEN))
    states: list[weakref.ref[CatalogState]] = []
    for number in range(5):
        registry.replace(tool("git.log", f"The log, take {number}."))
        assert set(views.of(Principal(f"one-off-{number}")).tools) == {"git.log"}
        states.append(weakref.ref(registry.state))
    gc.collect()

    assert [state() is not None for state in states] == [False] * 4 + [True]


def test_the_views_of_the_most_recent_principals_stay_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CACHED", 2)
    views = ViewCache(registry_of(tool("git.log")), ALLOW_ALL)
    ada, eve = views.of(ADA), views.of(EVE)
    assert views.of(ADA) is ada
    views.of(Principal("new"))

    assert views.of(ADA) is ada
    assert views.of(EVE) is not eve


def allowed(views: ViewCache, tool_ids: Iterable[str]) -> set[str]:
    return {tool_id for tool_id in tool_ids if tool_id in views.of(EVE).tools}


def test_during_a_change_of_the_policy_only_tools_allowed_by_both_are_visible() -> None:
    first, second = (Rules((Rule(Access.HIDDEN, sources=(name,)),), Access.CALL) for name in ("pay", "git"))
    ids = ("git.log", "pay.transfer", "fs.read")
    views = ViewCache(registry_of(*map(tool, ids)), first)
    with views.turning_to(second):
        assert allowed(views, ids) == {"fs.read"}
    assert allowed(views, ids) == {"pay.transfer", "fs.read"}
    with pytest.raises(ValueError, match="cannot"), views.turning_to(first):
        raise ValueError("cannot")
    assert allowed(views, ids) == {"pay.transfer", "fs.read"}
    policy: Policy = views.policy
    assert policy is second


def test_an_outdated_history_is_released() -> None:
    """This holds however long the same tools are visible: a busy gateway has a new history every few seconds."""
    visible = view_of(tool("git.log")).visible

    def laid_over(words: str) -> weakref.ref[History]:
        history = History.of([Confirmed(Query.parse(words), "git.log", at=1.0)])
        assert visible.recall(history).history is history
        return weakref.ref(history)

    pasts = [laid_over(f"what was done {number}") for number in range(5)]
    gc.collect()
    assert [past() for past in pasts] == [None] * 5
