"""Registered items in addition to a configuration: from Python, after a restart, and in conflicts."""

from __future__ import annotations

import json
import logging
import sqlite3
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from tests.servers.launching import faulty_entry, write_config
from tests.until import until

import toolcrib.crib.following
from toolcrib import Capability, Category, OwnCheck, ProgramOnPath, Tool, Toolcrib, VariableSet
from toolcrib.catalog.bundles import ToolBundle
from toolcrib.catalog.overrides import MetadataOverride
from toolcrib.config import Config
from toolcrib.config.registration_store import Registration, RegistrationStore
from toolcrib.config.registrations import Kind, Registrable
from toolcrib.core.errors import InvalidConfig, NotFound, UnknownBundle
from toolcrib.sources.declared.definition import read_declared, read_declared_source

pytestmark = pytest.mark.anyio

DISK = {"description": "Free room.", "command": ["df"]}
LOAD = {"description": "How busy it is.", "command": ["uptime"]}
OPS = read_declared_source("ops", {"title": "Operations", "tools": {"disk": DISK, "load": LOAD}})

EVERYTHING: tuple[Registrable, ...] = (
    OPS,
    Category(("Machines",), summary="What runs here", tools=("ops.*",)),
    Category(("Machines", "Disks"), tools=("ops.disk",), also_under=(("Storage",),), group=True),
    MetadataOverride.of("ops.load", tags=["busy"], requires_capabilities=["shell"]),
    ToolBundle("all", includes=("disks",)),
    ToolBundle("disks", "What has to do with disks", required=("ops.disk",)),
    Capability("shell", ProgramOnPath("sh"), "Install one."),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "registrations.sqlite"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolcrib.crib.following, "POLL_S", 0.01)


def ids(crib: Toolcrib) -> list[str]:
    return sorted(crib.view().tools)


def store_with(path: Path, *rows: tuple[str, str, Any]) -> RegistrationStore:
    """A store in which a different program registered these items."""
    store = RegistrationStore(path)
    store.update(lambda before: (*before, *(Registration(kind, name, json.dumps(body)) for kind, name, body in rows)))
    return store


def damaged(path: Path, damage: str) -> None:
    path.unlink(missing_ok=True)
    match damage:
        case "garbage":
            path.write_bytes(b"this is no database" * 100)
        case "for a different configuration":
            RegistrationStore(path, Path("other.json")).update(lambda _: [Registration("bundle", "b", "{}")])
        case _:
            pass


# -- from Python ------------------------------------------------------------------------------------------------------


async def test_registered_items_are_available_immediately_and_after_a_restart(path: Path) -> None:
    first = Toolcrib(registrations=RegistrationStore(path))
    first.register(*EVERYTHING)
    second = Toolcrib(registrations=RegistrationStore(path))
    async with second:
        for crib in (first, second):
            assert ids(crib) == ["ops.disk", "ops.load"]
            assert crib.view().sources["ops"].title == "Operations"
            assert [pointer.node.name for pointer in crib.list(["Machines"]).nodes] == ["Disks"]
            assert crib.view().tools["ops.load"].metadata.tags == ("busy",)
            assert sorted(crib.view(bundle="all").tools) == ["ops.disk"]
            assert crib.view().lacking == {}
            assert crib.registration_problems == ()
        answer = await second.call_tool(second.expand_tool("ops.load").handle)
        assert "load average" in answer.text


async def test_a_tool_registered_for_the_process_is_absent_after_a_restart(path: Path) -> None:
    crib = Toolcrib(registrations=RegistrationStore(path))
    crib.register_declared(OPS)
    assert ids(crib) == ["ops.disk", "ops.load"]
    async with Toolcrib(registrations=RegistrationStore(path)) as other:
        assert ids(other) == []


async def test_an_unregistered_item_is_absent_immediately_and_after_a_restart(path: Path) -> None:
    crib = Toolcrib(registrations=RegistrationStore(path))
    crib.register(*EVERYTHING)
    crib.unregister("tool", "ops.load")
    crib.unregister(Kind.CATEGORY, "Machines/Disks")
    assert ids(crib) == ["ops.disk"]
    with pytest.raises(InvalidConfig, match="`disks`"):
        crib.unregister("bundle", "disks")
    crib.unregister("bundle", "all")
    crib.unregister("bundle", "disks")
    with pytest.raises(NotFound, match="the bundle `disks` is not registered"):
        crib.unregister("bundle", "disks")
    crib.unregister("tool", "ops.disk")

    async with Toolcrib(registrations=RegistrationStore(path)) as other:
        for each in (crib, other):
            assert (ids(each), [*each.view().sources]) == ([], [])
            with pytest.raises(UnknownBundle):
                each.view(bundle="disks")


def test_several_items_are_registered_together_or_not_at_all(path: Path) -> None:
    crib = Toolcrib(registrations=RegistrationStore(path))
    crib.register(read_declared("ops", "disk", DISK))
    other = read_declared("ops", "disk", LOAD)
    with pytest.raises(InvalidConfig, match=r"`ops\.disk` is already registered, and differs"):
        crib.register(ToolBundle("new"), other)
    with pytest.raises(InvalidConfig, match="the bundle `broken`"):
        crib.register(ToolBundle("new"), ToolBundle("broken", includes=("nowhere",)))
    assert [row.key for row in RegistrationStore(path).all()] == [("tool", "ops.disk")]

    crib.register(read_declared("ops", "disk", DISK))
    crib.register(ToolBundle("new"), other, replacing=True)
    assert crib.view().tools["ops.disk"].description == "How busy it is."
    assert sorted(bundle.name for bundle in crib.bundles) == ["new"]


def test_items_with_code_cannot_be_registered_and_registering_needs_a_store(path: Path) -> None:
    crib = Toolcrib(registrations=RegistrationStore(path))
    with pytest.raises(InvalidConfig, match="`room` is checked by Python code"):
        crib.register(Capability("room", OwnCheck(lambda: True)))
    for thing, why in ((Tool("ops", "free"), "the tool `ops.free` cannot be stored"), (print, "cannot be stored")):
        with pytest.raises(InvalidConfig, match=why):
            crib.register(cast("Registrable", thing))
    with pytest.raises(InvalidConfig, match="registrations="):
        Toolcrib().register(OPS)
    assert not path.exists()


# -- in addition to a configuration -----------------------------------------------------------------------------------


async def test_the_configuration_overrides_registered_items_which_stay_stored(
    tmp_path: Path, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_with(
        path,
        ("tool", "ops.disk", DISK),
        ("tool", "ops.load", LOAD),
        ("tool", "bench.more", LOAD),
        ("category", "Machines", {"summary": "Registered"}),
        ("override", "ops.load", {"tags": ["registered"]}),
        ("override", "ops.*", {"risk": "registered", "cost": "nothing"}),
        ("bundle", "disks", {"required": ["nothing.at.all"]}),
        ("capability", "shell", {"program": "no-such-shell"}),
    )
    said = {
        "declared": {"ops": {"title": "Configured", "tools": {"disk": LOAD}}},
        "categories": {"Machines": {"summary": "Configured"}},
        "tools": {"ops.load": {"tags": ["configured"], "risk": "configured"}},
        "bundles": {"disks": {"required": ["ops.disk"]}},
        "capabilities": {"shell": {"program": "sh"}},
    }
    config = write_config(tmp_path / "mcp.json", toolcrib=said, bench=faulty_entry())
    crib = Toolcrib(registrations=store)
    read = crib.add_config(config)

    assert ids(crib) == ["ops.disk", "ops.load"]
    view = crib.view()
    assert (view.sources["ops"].title, view.tools["ops.disk"].description) == ("Configured", "How busy it is.")
    metadata = view.tools["ops.load"].metadata
    assert (metadata.tags, metadata.risk, metadata.cost) == (
        ("registered", "configured"),
        "configured",
        "nothing",
    )
    assert [category.summary for category in read.categories.given] == ["Configured"]
    assert crib.bundles["disks"].required == ("ops.disk",)
    passed_over = {problem.partition(":")[0] for problem in crib.registration_problems}
    assert passed_over == {
        "`ops.disk`",
        "`bench.more`",
        "the category `Machines`",
        "the bundle `disks`",
        "the capability `shell`",
    }
    assert (
        "registered but not used: `bench.more`: the name `bench` is already used by a server, a plugin or a source"
        in caplog.text
    )
    assert len(store.all()) == 8

    async with Toolcrib(registrations=RegistrationStore(path)) as alone:
        assert ids(alone) == ["bench.more", "ops.disk", "ops.load"]


async def test_an_unreadable_registration_is_reported_and_does_not_affect_others(path: Path) -> None:
    store = store_with(
        path,
        ("tool", "ops.disk", DISK),
        ("tool", "ops.bad", {"description": "x"}),
        ("tool", "noname", DISK),
        ("charm", "of a newer version", {}),
        ("bundle", "orphan", {"includes": ["gone"]}),
        ("category", "A", {"also_under": [["B"]]}),
        ("category", "B", {"also_under": [["A"]]}),
        ("capability", "odd", {"program": "a", "env": "b"}),
        ("override", "ops.*", {"tagz": []}),
        ("bundle", "damaged", None),
        ("category", "twice", {}),
    )
    with sqlite3.connect(path) as other:
        other.execute("""UPDATE registrations SET body = '{"title": "a", "title": "b"}' WHERE name = 'twice'""")
        other.execute("UPDATE registrations SET body = CAST(x'fffe' AS TEXT) WHERE name = 'damaged'")
    other.close()
    async with Toolcrib(registrations=store) as crib:
        assert ids(crib) == ["ops.disk"]
        names = [problem.partition(":")[0].split("`")[1] for problem in crib.registration_problems]
        assert sorted(names) == [
            "B", "damaged", "noname", "odd", "of a newer version", "ops.*", "ops.bad", "orphan", "twice",
        ]  # fmt: skip
        crib.register(ToolBundle("good"))
        crib.unregister("tool", "ops.bad")
    assert len(store.all()) == 11


def test_items_of_the_program_override_registered_items(path: Path) -> None:
    store = store_with(path, ("tool", "ops.disk", DISK), ("category", "Mine", {}), ("capability", "key", {"env": "X"}))
    crib = Toolcrib(registrations=store)
    crib.register_declared(read_declared_source("ops", {"tools": {"load": LOAD}}))
    crib.add_category(Category(("Mine",), summary="Mine"))
    crib.add_capability(Capability("key", VariableSet("Y")))
    crib.register(ToolBundle("good"))
    assert ids(crib) == ["ops.load"]
    assert len(crib.registration_problems) == 3
    with pytest.raises(
        InvalidConfig,
        match=r"`ops.more`: the name `ops` is already used by a server, a plugin or a source of this program",
    ):
        crib.register(read_declared("ops", "more", LOAD))


def test_a_registered_bundle_included_by_the_program_cannot_be_unregistered(path: Path) -> None:
    crib = Toolcrib(registrations=RegistrationStore(path))
    crib.register(ToolBundle("inner"))
    crib.add_bundle(ToolBundle("outer", includes=("inner",)))
    with pytest.raises(InvalidConfig, match="nothing was removed: outer: includes unknown bundle `inner`"):
        crib.unregister("bundle", "inner")
    assert len(RegistrationStore(path).all()) == 1


@pytest.mark.usefixtures("quick")
async def test_a_served_bundle_stays_in_force_when_a_different_program_unregisters_it(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Toolcrib(registrations=RegistrationStore(path)) as crib, anyio.create_task_group() as tasks:
        crib.register(OPS, ToolBundle("disks", required=("ops.disk",)))
        crib.confine("disks")
        tasks.start_soon(crib.follow)
        Toolcrib(registrations=RegistrationStore(path)).unregister("bundle", "disks")
        await until(lambda: "stays the only bundle served" in caplog.text, "the warning is logged")
        assert ids(crib) == ["ops.disk"]
        # Other registrations are still applied.
        Toolcrib(registrations=RegistrationStore(path)).register(MetadataOverride.of("ops.disk", risk="none"))
        await until(lambda: crib.view().tools["ops.disk"].metadata.risk == "none", "the other change is applied")
        with pytest.raises(InvalidConfig, match="is being served"):
            crib.unregister("bundle", "disks")
        tasks.cancel_scope.cancel()


# -- at run time ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
async def test_changes_by_a_different_program_apply_at_run_time(path: Path) -> None:
    async with Toolcrib(registrations=RegistrationStore(path)) as crib, anyio.create_task_group() as tasks:
        tasks.start_soon(crib.follow)
        other = Toolcrib(registrations=RegistrationStore(path))
        other.register(*EVERYTHING)
        await until(lambda: ids(crib) == ["ops.disk", "ops.load"], "the registered tools are available")
        assert crib.search_tools("how busy is it").results[0].tool_id == "ops.load"
        other.unregister("tool", "ops.load")
        await until(lambda: ids(crib) == ["ops.disk"], "the unregistered tool was removed")
        tasks.cancel_scope.cancel()


@pytest.mark.usefixtures("quick")
async def test_the_configuration_file_and_the_store_are_followed_together(tmp_path: Path, path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", toolcrib={"declared": {"mine": {"tools": {"a": LOAD}}}})
    crib = Toolcrib(registrations=RegistrationStore(path))
    read = crib.add_config(config)
    told: list[list[str]] = []

    def tell(now: Config) -> None:
        told.append([each.name for each in now.declared])

    async with crib, anyio.create_task_group() as tasks:
        tasks.start_soon(crib.follow, read, tell)
        store_with(path, ("tool", "ops.disk", DISK), ("tool", "mine.b", DISK))
        await until(lambda: ids(crib) == ["mine.a", "mine.b", "ops.disk"], "the registered tools are added")
        write_config(config, toolcrib={"declared": {"ops": {"tools": {"load": LOAD}}}})
        await until(lambda: ids(crib) == ["mine.b", "ops.disk", "ops.load"], "the new file and the registrations apply")
        await until(lambda: len(told) == 2, "both changes are reported")
        tasks.cancel_scope.cancel()
    assert told == [["mine", "ops"], ["ops", "mine"]]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("damage", ["deleted", "garbage", "for a different configuration"])
async def test_a_damaged_store_leaves_the_last_registrations_in_force_and_is_reported_once(
    path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_with(path, ("tool", "ops.disk", DISK))
    async with Toolcrib(registrations=store) as crib, anyio.create_task_group() as tasks:
        caplog.set_level(logging.WARNING)
        tasks.start_soon(crib.follow)
        damaged(path, damage)
        await until(lambda: crib.registration_problems, "the problem is reported")
        (problem,) = crib.registration_problems
        assert "in force" in problem
        for _ in range(5):
            await anyio.sleep(toolcrib.crib.following.POLL_S)
        assert ids(crib) == ["ops.disk"]
        assert [record.message for record in caplog.records].count(problem) == 1

        damaged(path, "deleted")
        store_with(path, ("tool", "ops.load", LOAD))
        await until(lambda: ids(crib) == ["ops.load"], "the new store is followed")
        assert crib.registration_problems == ()
        tasks.cancel_scope.cancel()


async def test_a_program_does_not_start_with_an_unreadable_store(tmp_path: Path, path: Path) -> None:
    """A registration may restrict access."""
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()
    crib = Toolcrib(registrations=RegistrationStore(path))
    config = write_config(tmp_path / "mcp.json", toolcrib={"declared": {"ops": {"tools": {"disk": DISK}}}})
    with pytest.raises(InvalidConfig, match="newer version"):
        crib.add_config(config)
    with pytest.raises(InvalidConfig, match="newer version"):
        async with crib:
            pass


async def test_tools_with_an_unreadable_override_require_approval(path: Path) -> None:
    store = store_with(path, ("tool", "ops.disk", DISK), ("override", "ops.*", {"risk": 1}))
    async with Toolcrib(registrations=store) as crib:
        assert crib.view().tools["ops.disk"].metadata.requires_permission
        assert "ops.*" in crib.registration_problems[0]


async def test_settings_of_a_first_configuration_stay_in_force_with_a_second_one(tmp_path: Path) -> None:
    crib = Toolcrib()
    said = {
        "declared": {"ops": {"tools": {"disk": DISK}}},
        "tools": {"ops.disk": {"requires_permission": True, "requires_capabilities": ["shell"]}},
        "bundles": {"disks": {"required": ["ops.disk"]}},
        "capabilities": {"shell": {"program": "sh"}},
    }
    crib.add_config(write_config(tmp_path / "one.json", toolcrib=said))
    crib.add_config(write_config(tmp_path / "two.json", toolcrib={"tools": {"ops.*": {"risk": "none"}}}))
    metadata = crib.view().tools["ops.disk"].metadata
    assert (metadata.requires_permission, metadata.risk) == (True, "none")
    assert [tool.id for tool in crib.resolve("disks").required] == ["ops.disk"]
