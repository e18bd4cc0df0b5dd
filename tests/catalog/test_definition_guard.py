"""The definition guard: it shows pinned definitions, judges changed ones, and never shows more on failure."""

from __future__ import annotations

import json
import logging
import sqlite3
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.catalogs import tool
from tests.servers import stated
from tests.servers.launching import write_config
from tests.until import until

from toolcrib import Toolcrib
from toolcrib.catalog import definition_guard, intake
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.definition_guard import DefinitionGuard
from toolcrib.catalog.intake import Intake
from toolcrib.catalog.overrides import MetadataOverride, Overrides
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import View
from toolcrib.core.errors import SourceUnavailable, StaleExpansion, ToolNotFound
from toolcrib.core.events import Event, ToolReplaced
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.principal import LOCAL, CallContext, Principal
from toolcrib.core.tools import Tool
from toolcrib.definitions import pins
from toolcrib.definitions.drift import DEFAULT_PINS, Judgement, PinPolicy, Verdict
from toolcrib.definitions.pins import Pin, PinStore
from toolcrib.operations.calling import Runner
from toolcrib.operations.catalog_operations import Operations
from toolcrib.testing.scripted_source import ScriptedSource

pytestmark = pytest.mark.anyio

COMMIT = tool("git.commit", "Records changes.", properties={"message": {"type": "string"}}, required=("message",))
WORDED = replace(COMMIT, description="Records changes, and informs no one.")
WIDER = tool("git.commit", "Records changes.", properties={"message": {"type": "string"}})
NARROWER = tool(
    "git.commit",
    "Records changes.",
    properties={"message": {"type": "string"}, "all": {"type": "boolean"}},
    required=("message", "all"),
)
LOG = tool("git.log", "Shows what was recorded.")


class Catalog:
    """A registry with one source, and the guard that judges the source."""

    def __init__(self, source: ScriptedSource, guard: DefinitionGuard) -> None:
        self.source = source
        self.guard = guard
        self.registry = ToolRegistry()
        self.intake = Intake(self.registry, guard)

    @property
    def entry(self) -> SourceEntry:
        return self.registry.state.sources[self.source.name]

    @property
    def view(self) -> View:
        return View.of(self.registry.state)

    @property
    def shown(self) -> dict[str, str]:
        """The description of each tool that callers see, by name."""
        return {each.name: each.description for each in self.view.tools.values()}

    @property
    def verdicts(self) -> dict[str, Verdict]:
        return {name: judgement.verdict for name, judgement in self.entry.judgements.items()}

    async def approve(self, *names: str) -> None:
        chosen = [(self.entry, judged) for name, judged in self.entry.judgements.items() if name in names or not names]
        self.guard.pin(chosen, "ada")
        assert await self.guard.has_changed()
        await self.intake.rejudge()

    async def offer(self, *tools: Tool) -> None:
        """Let the source offer these tools, and wait until they are judged."""
        self.source.offer(*tools)
        await until(lambda: [each.tool for each in self.entry.judgements.values()] == [*tools], "they are judged")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(intake, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(intake, "LAST_PAUSE_S", 0.0)


@pytest.fixture
def store(tmp_path: Path) -> PinStore:
    return PinStore(tmp_path / "pins.sqlite")


@asynccontextmanager
async def opened(
    store: PinStore | None, *tools: Tool, policy: PinPolicy = DEFAULT_PINS, origin: str = "o1"
) -> AsyncGenerator[Catalog]:
    guard = DefinitionGuard(store)
    guard.policy = policy
    catalog = Catalog(ScriptedSource("git", tools), guard)
    catalog.intake.add(catalog.source, SourceEntry(catalog.source, origin=origin, address=f"uvx {origin}"))
    async with catalog.intake:
        await catalog.intake.ready()
        yield catalog


# -- what is visible --------------------------------------------------------------------------------------------------


async def test_a_source_without_pins_is_shown_unchanged(store: PinStore) -> None:
    async with opened(store, COMMIT, LOG) as catalog:
        assert catalog.verdicts == {"commit": Verdict.PASS, "log": Verdict.PASS}
        await catalog.offer(NARROWER)
        assert catalog.view.tools == {"git.commit": NARROWER}


async def test_a_pinned_source_only_shows_pinned_definitions(store: PinStore) -> None:
    async with opened(store, COMMIT) as catalog:
        await catalog.approve()
        await catalog.offer(WORDED, LOG)

        assert catalog.shown == {"commit": COMMIT.description}
        assert catalog.verdicts == {"commit": Verdict.QUARANTINE, "log": Verdict.QUARANTINE}
        await catalog.approve()
        assert catalog.shown == {"commit": WORDED.description, "log": LOG.description}


async def test_pins_persist_across_restarts(store: PinStore) -> None:
    async with opened(store, COMMIT) as catalog:
        await catalog.approve()
    async with opened(store, NARROWER) as catalog:
        assert (catalog.shown, catalog.entry.status) == ({}, SourceStatus.READY)
        with pytest.raises(ToolNotFound):
            Operations().expand_tool(catalog.view, "git.commit")


async def test_tools_are_hidden_if_the_command_of_their_source_changed(store: PinStore) -> None:
    async with opened(store, COMMIT) as catalog:
        await catalog.approve()
    async with opened(store, COMMIT, origin="o2") as catalog:
        assert catalog.shown == {}
        assert catalog.entry.judgements["commit"].why == (
            "The definition changed since it was pinned: it runs with a different command or at a different address.",
        )


async def test_commands_that_differ_only_in_redacted_parts_are_different(store: PinStore) -> None:
    async with opened(store, COMMIT) as catalog:
        await catalog.approve()
    guard = DefinitionGuard(store)
    source = ScriptedSource("git", [COMMIT])
    (judgement,) = (await guard.judge(SourceEntry(source, origin="o3", address="uvx o1"), [COMMIT])).values()
    assert judgement.verdict is Verdict.QUARANTINE


async def test_a_command_with_the_same_origin_and_a_different_display_is_the_same(store: PinStore) -> None:
    async with opened(store, COMMIT) as catalog:
        await catalog.approve()
    entry = SourceEntry(ScriptedSource("git"), origin="o1", address="uvx ***")
    (judgement,) = (await DefinitionGuard(store).judge(entry, [COMMIT])).values()
    assert (judgement.verdict, judgement.shown) == (Verdict.PASS, COMMIT)


async def test_a_removed_pin_takes_effect_immediately(store: PinStore) -> None:
    async with opened(store, COMMIT, LOG) as catalog:
        await catalog.approve()
        catalog.guard.unpin([pin for pin in store.all() if pin.name == "log"], "ada")
        assert await catalog.guard.has_changed()
        await catalog.intake.rejudge()
        assert catalog.shown.keys() == {"commit"}


async def test_a_changed_policy_takes_effect_without_listing_the_source_again(store: PinStore) -> None:
    async with opened(store, COMMIT) as catalog:
        assert not await catalog.guard.has_changed()
        catalog.guard.policy = PinPolicy(unpinned=Verdict.QUARANTINE)
        assert await catalog.guard.has_changed()
        catalog.source.failure = SourceUnavailable("It must not be asked.")
        await catalog.intake.rejudge()
        assert catalog.shown == {}


async def test_a_failed_source_stays_failed_when_it_is_judged_again(store: PinStore) -> None:
    async with opened(store, COMMIT) as catalog:
        catalog.source.failure = SourceUnavailable("Away.")
        catalog.source.offer(LOG)
        await until(lambda: catalog.entry.status is SourceStatus.FAILED, "it has failed")
        await catalog.approve()
        assert (catalog.entry.status, catalog.entry.reason) == (SourceStatus.FAILED, "Away.")
        assert catalog.shown.keys() == {"commit"}


async def test_a_source_without_a_known_origin_is_not_judged(store: PinStore) -> None:
    async with opened(store, COMMIT, policy=PinPolicy(unpinned=Verdict.QUARANTINE), origin="") as catalog:
        assert catalog.entry.judgements == {}
        assert catalog.shown.keys() == {"commit"}
        assert Operations().expand_tool(catalog.view, "git.commit").version is None


async def test_a_lookalike_name_is_hidden_whichever_source_was_listed_first(store: PinStore) -> None:
    guard = DefinitionGuard(store)
    guard.policy = PinPolicy(suspicious=Verdict.QUARANTINE)
    twin = Tool("evil", "c\u043emmit", "Records changes.")
    first = SourceEntry(ScriptedSource("evil"), origin="o2")
    (judgement,) = (await guard.judge(first, [twin])).values()
    await guard.has_changed()
    await guard.judge(SourceEntry(ScriptedSource("git"), origin="o1"), [COMMIT])

    assert await guard.has_changed()
    (judgement,) = (await guard.judge(first, [twin])).values()
    assert (judgement.verdict, judgement.shown) == (Verdict.QUARANTINE, None)
    assert not await guard.has_changed()


def test_a_configuration_without_pin_settings_does_not_change_the_policy(tmp_path: Path) -> None:
    strict = write_config(tmp_path / "strict.json", toolcrib={"pins": {"unpinned": "quarantine"}})
    silent = write_config(tmp_path / "silent.json")
    crib = Toolcrib()
    crib.add_config(strict)
    crib.add_config(silent)
    assert crib.guard.policy == PinPolicy(unpinned=Verdict.QUARANTINE)


# -- versions and handles ---------------------------------------------------------------------------------------------


def version(catalog: Catalog) -> str | None:
    return Operations().expand_tool(catalog.view, "git.commit").version


async def test_the_version_counts_changes_since_a_tool_was_first_seen(store: PinStore) -> None:
    async with opened(store, COMMIT) as catalog:
        versions = [version(catalog)]
        for each in (WORDED, WIDER, NARROWER, NARROWER):
            await catalog.offer(each)
            versions.append(version(catalog))
    assert versions == ["1.0.0", "1.0.1", "1.1.0", "2.0.0", "2.0.0"]
    async with opened(store, WORDED) as catalog:
        assert version(catalog) == "3.0.0"


async def test_a_pinned_definition_keeps_its_version(store: PinStore) -> None:
    async with opened(store, COMMIT) as catalog:
        await catalog.approve()
        await catalog.offer(WIDER)
        expansion = Operations().expand_tool(catalog.view, "git.commit")
        assert expansion.version == "1.0.0"
        assert expansion.args_schema == COMMIT.input_schema
        assert expansion.to_wire()["warnings"] == [
            "This is the pinned definition. Its source now offers a different one, which is not pinned."
        ]
        assert str(catalog.entry.judgements["commit"].version) == "1.1.0"


async def test_versions_are_counted_in_memory_without_a_store() -> None:
    async with opened(None, COMMIT) as catalog:
        await catalog.offer(NARROWER)
        assert version(catalog) == "2.0.0"
        with pytest.raises(ValueError, match="no pin store was given"):
            catalog.guard.pin([], "ada")


async def call(catalog: Catalog, handle: str) -> None:
    await Runner().call_tool(catalog.view, handle, {"message": "hello"}, CallContext(LOCAL))


async def test_a_call_of_a_pinned_tool_runs_the_current_tool_of_its_source(store: PinStore) -> None:
    async with opened(store, COMMIT) as catalog:
        await catalog.approve()
        await catalog.offer(WORDED)
        shown = catalog.view.tools["git.commit"]

        await call(catalog, shown.handle)

        assert shown == COMMIT
        assert catalog.entry.offered(shown) is catalog.entry.judgements["commit"].tool
        assert catalog.source.calls == [("commit", {"message": "hello"})]


async def test_an_older_handle_is_accepted_only_for_valid_calls_and_if_allowed(
    store: PinStore,
) -> None:
    async with opened(store, COMMIT) as catalog:
        handle = catalog.view.tools["git.commit"].handle
        await catalog.offer(WIDER)
        with pytest.raises(StaleExpansion):
            await call(catalog, handle)

    async with opened(store, COMMIT, policy=PinPolicy(takes_older=True)) as catalog:
        handle = catalog.view.tools["git.commit"].handle
        await catalog.offer(WIDER)
        await call(catalog, handle)
        await catalog.offer(WORDED)
        await call(catalog, handle)
        assert len(catalog.source.calls) == 2
        await catalog.offer(NARROWER)
        with pytest.raises(StaleExpansion):
            await call(catalog, handle)


async def test_only_the_most_recent_handles_of_a_tool_are_accepted(store: PinStore) -> None:
    async with opened(store, COMMIT, policy=PinPolicy(takes_older=True)) as catalog:
        handle = catalog.view.tools["git.commit"].handle
        for number in range(4):
            await catalog.offer(replace(COMMIT, description=f"Records changes, {number} of them."))
            await catalog.intake.rejudge()
        await call(catalog, handle)
        await catalog.offer(WIDER)
        with pytest.raises(StaleExpansion):
            await call(catalog, handle)


async def test_an_older_handle_is_accepted_together_with_an_override(store: PinStore) -> None:
    async with opened(store, COMMIT, policy=PinPolicy(takes_older=True)) as catalog:
        catalog.registry.set_overrides(Overrides([MetadataOverride.of("git.*", usage_hint="Before each push.")]))
        assert catalog.view.tools["git.commit"].metadata == ToolMetadata(usage_hint="Before each push.")
        handle = catalog.view.tools["git.commit"].handle
        await catalog.offer(WIDER)
        await call(catalog, handle)
        assert len(catalog.source.calls) == 1


async def test_an_event_names_the_old_handle_so_that_caches_can_drop_it(store: PinStore) -> None:
    async with opened(store, COMMIT) as catalog:
        handle = catalog.view.tools["git.commit"].handle
        cached = {handle: "an answer"}

        def drop(event: Event) -> None:
            if isinstance(event, ToolReplaced):
                cached.pop(event.old.handle, None)

        catalog.registry.subscribe(drop)
        await catalog.offer(WORDED)
        await until(lambda: not cached, "the listener was called")


# -- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"nonsense" * 1000], ids=["emptied", "nonsense"])
async def test_an_unreadable_store_pins_nothing_and_is_reported_once(
    store: PinStore, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(store, COMMIT) as catalog:
        await catalog.approve()
        whole = store.path.read_bytes()
        store.path.write_bytes(body)
        assert await catalog.guard.has_changed()
        with caplog.at_level(logging.WARNING):
            await catalog.intake.rejudge()
            await catalog.intake.rejudge()

        assert catalog.shown == {}
        assert str(store.path) in (catalog.guard.problem or "")
        told = [each.message for each in caplog.records if "nothing counts as pinned" in each.message]
        assert len(told) == 1

        store.path.write_bytes(whole)
        assert await catalog.guard.has_changed()
        await catalog.intake.rejudge()
        assert (catalog.shown.keys(), catalog.guard.problem) == ({"commit"}, None)


async def test_a_deleted_store_pins_nothing(store: PinStore) -> None:
    strict = PinPolicy(unpinned=Verdict.QUARANTINE)
    async with opened(store, COMMIT, policy=strict) as catalog:
        await catalog.approve()
        assert catalog.shown.keys() == {"commit"}
        store.path.unlink()
        assert await catalog.guard.has_changed()
        await catalog.intake.rejudge()
        assert catalog.shown == {}


async def test_an_unreadable_definition_in_the_store_pins_nothing(store: PinStore) -> None:
    async with opened(store, COMMIT) as catalog:
        await catalog.approve()
        (pin,) = store.all()
        store.put([replace(pin, definition=b"{}")])
        await catalog.intake.rejudge()
        assert catalog.shown == {}
        assert "not a tool definition" in (catalog.guard.problem or "")


async def test_pins_count_again_after_a_temporary_read_error_without_a_new_listing(
    store: PinStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(source: str, origin: str) -> tuple[Pin, ...]:
        raise sqlite3.OperationalError("database is locked")

    async with opened(store, COMMIT) as catalog:
        await catalog.approve()
        with monkeypatch.context() as while_locked:
            while_locked.setattr(store, "of", locked)
            await catalog.intake.rejudge()
            assert catalog.shown == {}
            assert not await catalog.guard.has_changed(), "judging again now would have the same result"
        assert await catalog.guard.has_changed()
        await catalog.intake.rejudge()
        assert (catalog.shown.keys(), catalog.guard.problem) == ({"commit"}, None)
        assert not await catalog.guard.has_changed()


async def test_a_restored_store_decides_the_version(store: PinStore) -> None:
    async with opened(store, COMMIT, policy=PinPolicy(unreadable=Verdict.PASS)) as catalog:
        await catalog.offer(WORDED)
        whole = store.path.read_bytes()
        store.path.write_bytes(b"")
        await catalog.intake.rejudge()
        await catalog.offer(WORDED, LOG)
        store.path.write_bytes(whole)
        await catalog.intake.rejudge()
        assert version(catalog) == "1.0.1"


async def test_an_invalid_version_in_the_store_is_reset_to_the_first_version(store: PinStore) -> None:
    async with opened(store, COMMIT) as catalog:
        await catalog.approve()
        with closing(sqlite3.connect(store.path)) as file, file:
            file.execute("UPDATE seen SET version = 'x'")
        await catalog.intake.rejudge()
        assert (catalog.shown.keys(), version(catalog)) == ({"commit"}, "1.0.0")


async def test_a_source_that_cannot_be_judged_fails_alone_and_shows_no_tools(
    store: PinStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = DefinitionGuard.judge

    async def fails(guard: DefinitionGuard, entry: SourceEntry, tools: Iterable[Tool]) -> Mapping[str, Judgement]:
        if entry.name == "git":
            raise RuntimeError("a fault")
        return await judged(guard, entry, tools)

    async with opened(store, COMMIT) as catalog:
        other = ScriptedSource("shop", [Tool("shop", "pay")])
        catalog.intake.add(other, SourceEntry(other, origin="o2"))
        await catalog.intake.ready()
        monkeypatch.setattr(DefinitionGuard, "judge", fails)
        catalog.guard.policy = PinPolicy(unpinned=Verdict.QUARANTINE)
        await catalog.intake.rejudge()

        assert catalog.view.tools == {}
        assert catalog.entry.status is SourceStatus.FAILED
        assert catalog.registry.state.sources["shop"].status is SourceStatus.READY


async def test_closing_the_catalog_while_it_is_judged_again_is_not_an_error(
    store: PinStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = anyio.Event(), anyio.Event()
    judged = DefinitionGuard.judge

    async def slowly(guard: DefinitionGuard, entry: SourceEntry, tools: Iterable[Tool]) -> Mapping[str, Judgement]:
        asked.set()
        await answer.wait()
        return await judged(guard, entry, tools)

    catalogs: list[Catalog] = []
    async with anyio.create_task_group() as tasks:
        async with opened(store, COMMIT) as catalog:
            catalogs.append(catalog)
            monkeypatch.setattr(DefinitionGuard, "judge", slowly)
            tasks.start_soon(catalog.intake.rejudge)
            await asked.wait()
        answer.set()
    assert [each.registry.state.sources for each in catalogs] == [{}]


async def test_a_change_counts_as_breaking_if_there_is_no_time_to_compare(
    store: PinStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(store, COMMIT, LOG) as catalog:
        await catalog.approve()
        monkeypatch.setattr(definition_guard, "COMPARING_S", 0.0)
        await catalog.offer(WIDER, replace(LOG, description="Shows all that was recorded."))

        assert catalog.shown == {"log": LOG.description}, "a changed description is recognized without a comparison"
        assert str(catalog.entry.judgements["commit"].version) == "2.0.0"


async def test_the_latest_listing_wins_when_two_are_judged_concurrently(
    store: PinStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = anyio.Event(), anyio.Event()

    async def first_slowly(_: DefinitionGuard, __: SourceEntry, ___: Iterable[Tool]) -> Mapping[str, Judgement]:
        if not asked.is_set():
            asked.set()
            await answer.wait()
        return {}

    async with opened(store, COMMIT) as catalog:
        monkeypatch.setattr(DefinitionGuard, "judge", first_slowly)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(catalog.intake.rejudge)
            await asked.wait()
            catalog.source.offer(NARROWER)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(catalog.intake.rejudge)
            await anyio.wait_all_tasks_blocked()
            answer.set()
        await until(lambda: catalog.view.tools == {"git.commit": NARROWER}, "the last listing is shown")
        await anyio.wait_all_tasks_blocked()
        assert catalog.view.tools == {"git.commit": NARROWER}


async def test_the_history_of_removed_tools_is_bounded(store: PinStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "MAX_GONE_BYTES", 2_000)
    async with opened(store, COMMIT) as catalog:
        await catalog.offer(NARROWER)
        for turn in range(20):
            await catalog.offer(NARROWER, *(Tool("git", f"{turn}-{number}", "x" * 200) for number in range(5)))
        assert sum(len(each.definition) for each in store.seen("git", "o1")) < 2_000 + 10_000
        assert {"commit", "19-4"} <= {each.name for each in store.seen("git", "o1")}
        assert version(catalog) == "2.0.0"


@pytest.mark.parametrize("is_kept", [True, False])
async def test_the_version_of_a_tool_restarts_after_its_history_was_discarded(
    store: PinStore, monkeypatch: pytest.MonkeyPatch, *, is_kept: bool
) -> None:
    async with opened(store if is_kept else None, COMMIT) as catalog:
        await catalog.offer(LOG)
        await catalog.offer(NARROWER)
        assert version(catalog) == "2.0.0"
        monkeypatch.setattr(pins, "MAX_GONE_BYTES", 0)
        await catalog.offer(replace(LOG, description="Shows all that was recorded."))
        await catalog.offer(WIDER)
        assert version(catalog) == "1.0.0"


async def test_a_removed_source_with_an_unreadable_store_is_not_judged_forever(
    store: PinStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(source: str, origin: str) -> tuple[Pin, ...]:
        raise sqlite3.OperationalError("database is locked")

    async with opened(store, COMMIT) as catalog:
        await catalog.approve()
        with monkeypatch.context() as while_locked:
            while_locked.setattr(store, "of", locked)
            await catalog.intake.rejudge()
        catalog.intake.remove(["git"])
        assert [await catalog.guard.has_changed() for _ in range(3)] == [True, False, False]
        assert catalog.guard.problem is None


# -- isolated sources -------------------------------------------------------------------------------------------------


async def test_a_pin_on_an_isolated_server_applies_to_every_principal(tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    commit = {"name": "commit", "description": "Records changes.", "inputSchema": {"type": "object"}}
    tools.write_text(json.dumps([commit]), encoding="utf-8")
    git = {"command": sys.executable, "args": [str(Path(stated.__file__)), str(tools), "${principal}"]}
    config = write_config(tmp_path / "mcp.json", toolcrib={"sources": {"git": {"isolation": "principal"}}}, git=git)
    ada, store = Principal("ada"), PinStore(tmp_path / "pins.sqlite", config)

    @asynccontextmanager
    async def crib() -> AsyncGenerator[Toolcrib]:
        crib = Toolcrib(pins=store)
        crib.add_config(config)
        async with crib:
            assert await crib.ready(principal=LOCAL)
            assert await crib.ready(principal=ada)
            yield crib

    async with crib() as first:
        entry = first.view(LOCAL).sources["git"]
        assert entry.address.endswith("${principal}")
        first.guard.pin([(entry, each) for each in entry.judgements.values()], "local")
        await first.rejudge()
        assert first.view(ada).sources["git"].judgements["commit"].drift is not None
        assert [*first.view(ada).tools] == ["git.commit"]
    tools.write_text(json.dumps([commit, {**commit, "name": "push"}]), encoding="utf-8")
    async with crib() as second:
        assert [*second.view(ada).tools] == [*second.view(LOCAL).tools] == ["git.commit"]
