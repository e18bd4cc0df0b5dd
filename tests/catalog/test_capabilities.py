"""Capabilities: when one is available, when it is checked, and how tools that need a missing one behave."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.catalogs import registry_of, tool
from tests.servers.launching import faulty_entry, write_config
from tests.until import until, until_blocking

from toolcrib import (
    AddressAccepts,
    CallContext,
    Capability,
    Checker,
    OwnCheck,
    PackageImportable,
    PathExists,
    Principal,
    ProgramOnPath,
    Tool,
    Toolcrib,
    ToolMetadata,
    VariableSet,
)
from toolcrib.catalog.capabilities import Capabilities, Findings
from toolcrib.core.client import SilentClient
from toolcrib.core.errors import CapabilityMissing, InvalidCursor, NextAction, NotExpanded
from toolcrib.core.events import CatalogPublished, Event
from toolcrib.core.principal import LOCAL

ADA, BOB = Principal("ada"), Principal("bob")


def needing(tool_id: str, *names: str) -> Tool:
    return replace(tool(tool_id, "Build an image."), metadata=ToolMetadata(requires_capabilities=names))


class Bench:
    """A catalog whose only tool needs `it`, and a clock that the test sets."""

    def __init__(self, check: Checker, **more: Any) -> None:
        self.now = 0.0
        self.registry = registry_of(needing("box.build", "it"))
        self.capabilities = Capabilities(self._publish, clock=lambda: self.now)
        self.handed_over = 0
        self.published: list[Findings] = []
        self.capabilities.set_up([Capability("it", check, **more)])

    def _publish(self, findings: Findings) -> None:
        self.handed_over += 1
        before = self.registry.state
        self.registry.set_findings(findings)
        if self.registry.state is not before:
            self.published.append(findings)

    def look(self, *own: str) -> str | None:
        """Why the tool cannot be called; None if it can be called."""
        self.capabilities.check(self.registry.state.needing, frozenset(own))
        return self.registry.state.findings.why_not(["it"])


@dataclass(frozen=True)
class Quick:
    """Reads a list: an empty list means available; otherwise its last string is the reason."""

    said: list[str]
    looks: list[str]
    is_quick = True
    looked_for = "a list"

    def why_missing(self, timeout_s: float) -> str | None:
        self.looks.append(threading.current_thread().name)
        return self.said[-1] if self.said else None


class Slow:
    """A check function that returns `says` as soon as `may_answer` is set."""

    def __init__(self, *, may_answer: bool = True) -> None:
        self.may_answer = threading.Event()
        if may_answer:
            self.may_answer.set()
        self.asked = 0
        self.says: bool | str = True

    def __call__(self) -> bool | str:
        self.asked += 1
        assert self.may_answer.wait(60)
        return self.says


def settled(bench: Bench) -> None:
    anyio.run(bench.capabilities.settled)


# -- when a capability is available -----------------------------------------------------------------------------------


def test_a_program_is_available_if_it_is_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ProgramOnPath("docker").why_missing(1) == "its program is not on the PATH"
    put_program(tmp_path, "docker")
    assert ProgramOnPath("docker").why_missing(1) is None


def test_a_variable_is_available_if_it_is_set_and_not_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLCRIB_TEST_4B", raising=False)
    missing = "its environment variable is not set"
    assert VariableSet("TOOLCRIB_TEST_4B").why_missing(1) == missing
    monkeypatch.setenv("TOOLCRIB_TEST_4B", "")
    assert VariableSet("TOOLCRIB_TEST_4B").why_missing(1) == missing
    monkeypatch.setenv("TOOLCRIB_TEST_4B", "x")
    assert VariableSet("TOOLCRIB_TEST_4B").why_missing(1) is None


def test_a_path_is_available_if_it_exists_and_is_not_revealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert PathExists(str(tmp_path)).why_missing(1) is None
    assert PathExists("~/model.bin").why_missing(1) == "its file or folder does not exist"
    (tmp_path / "model.bin").touch()
    assert PathExists("~/model.bin").why_missing(1) is None


def test_a_package_is_available_if_it_could_be_imported_and_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "crib_probe" / "inner").mkdir(parents=True)
    for init in ("__init__.py", "inner/__init__.py"):
        (tmp_path / "crib_probe" / init).write_text("raise AssertionError('imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("crib_probe", "crib_probe.inner", "sys", "json.decoder"):
        assert PackageImportable(name).why_missing(1) is None, name
    for name in ("crib_probe.other", "crib_probe.inner.deeper", "no_such_package_4b", "no_such_package_4b.x", "sys.x"):
        assert PackageImportable(name).why_missing(1) == f"the Python package `{name}` is not installed"
    assert not [name for name in sys.modules if name.startswith("crib_probe")]


@contextmanager
def listening() -> Generator[int]:
    """A port that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_an_address_is_available_if_it_accepts_connections_and_is_not_revealed() -> None:
    with listening() as port:
        assert AddressAccepts("127.0.0.1", port).why_missing(10) is None
    assert AddressAccepts("127.0.0.1", port).why_missing(10) == "nothing accepts connections at its address"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (True, None),
        (False, "it is not available"),
        ("", "it is not available"),
        ("no driver", "no driver"),
        (None, "it is not"),
    ],
)
def test_a_check_function_reports_availability_only_by_returning_true(said: Any, reason: str | None) -> None:
    found = OwnCheck(lambda: said).why_missing(1)
    assert (found is None) == (reason is None)
    assert (found or "").startswith(reason or "")


# -- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "remedy", "told"),
    [
        ("no driver", "", "It needs `it`: no driver."),
        ("no driver", "Install it", "It needs `it`: no driver. Install it."),
        ("Busy!\n", "Come\nback.", "It needs `it`: Busy! Come back."),
    ],
)
def test_the_reason_and_the_remedy_are_formatted_as_sentences(reason: str, remedy: str, told: str) -> None:
    assert Bench(Quick([reason], []), remedy=remedy).look() == told


def test_a_capability_that_is_not_configured_is_reported_as_missing() -> None:
    bench = Bench(Quick([], []))
    bench.capabilities.set_up([])
    assert bench.look() == "It needs `it`: no capability with this name is configured."


def test_every_missing_capability_is_reported() -> None:
    findings = Findings(frozenset({"c"}), {"a": "No a."})
    assert (
        findings.why_not(["a", "b", "c"])
        == "It needs `a`: No a. It needs `b`: no capability with this name is configured."
    )
    assert findings.why_not(["c"]) is None


# -- when a capability is checked -------------------------------------------------------------------------------------


def test_only_capabilities_that_tools_need_are_checked_and_only_on_demand() -> None:
    looks: list[str] = []
    bench = Bench(Quick([], looks))
    bench.capabilities.set_up([Capability("it", Quick([], looks)), Capability("other", Quick([], looks))])
    assert looks == []
    assert bench.look() is None
    assert len(looks) == 1
    bench.registry.unregister("box.build")
    bench.now = 1_000
    bench.look()
    assert len(looks) == 1


def test_a_positive_result_is_cached_longer_than_a_negative_one() -> None:
    said, looks = list[str](), list[str]()
    bench = Bench(Quick(said, looks), lifetime_s=60, missing_lifetime_s=5)
    assert bench.look() is None
    said.append("gone")
    bench.now = 59.9
    assert bench.look() is None
    bench.now = 60
    assert bench.look() == "It needs `it`: gone."
    said.clear()
    bench.now = 64.9
    assert bench.look() == "It needs `it`: gone."
    bench.now = 65
    assert bench.look() is None
    assert len(looks) == 3


def test_a_quick_check_runs_immediately_and_a_slow_check_in_a_daemon_thread() -> None:
    looks: list[str] = []
    assert Bench(Quick([], looks)).look() is None
    assert looks == [threading.current_thread().name]
    ran_in: list[threading.Thread] = []

    def slow() -> bool:
        ran_in.append(threading.current_thread())
        return True

    bench = Bench(OwnCheck(slow))
    bench.look()
    settled(bench)
    assert bench.look() is None
    assert ran_in[0] is not threading.current_thread()
    assert ran_in[0].daemon, "it must not keep the program from ending"


def test_a_capability_is_missing_until_its_first_check_answers() -> None:
    slow = Slow(may_answer=False)
    bench = Bench(OwnCheck(slow), remedy="Buy one.")
    assert bench.look() == "It needs `it`: Toolcrib is still checking for it. Try again in a moment."
    slow.may_answer.set()
    until_blocking(lambda: bench.registry.state.findings.why_not(["it"]) is None, "it was published")
    assert slow.asked == 1


def test_the_previous_result_counts_while_a_check_runs_again() -> None:
    slow = Slow()
    bench = Bench(OwnCheck(slow))
    bench.look()
    settled(bench)
    slow.may_answer.clear()
    slow.says = "gone"
    bench.now = 60
    assert bench.look() is None
    slow.may_answer.set()
    until_blocking(lambda: bench.look() == "It needs `it`: gone.", "the second answer came")
    assert slow.asked == 2


def test_a_hanging_check_counts_as_missing_and_is_not_started_twice() -> None:
    slow, before = Slow(may_answer=False), {*threading.enumerate()}
    bench = Bench(OwnCheck(slow), remedy="Restart it.", timeout_s=3)
    bench.look()
    bench.now = 2.9
    assert "still checking for it" in (bench.look() or "")
    for bench.now in (3.0, 100.0, 10_000.0):
        assert bench.look() == "It needs `it`: checking for it takes longer than 3 s. Restart it."
    bench.registry.register(needing("box.push", "it", "more"))
    bench.look("own")
    begun = {*threading.enumerate()} - before
    assert [thread.name for thread in begun] == ["capability it"]
    slow.may_answer.set()
    until_blocking(lambda: bench.look() is None, "it answered after all")
    assert slow.asked == 1


def test_a_repeated_check_that_hangs_counts_as_missing_after_its_deadline() -> None:
    slow = Slow()
    bench = Bench(OwnCheck(slow), lifetime_s=60, timeout_s=3)
    bench.look()
    settled(bench)
    slow.may_answer.clear()
    bench.now = 60
    assert bench.look() is None
    bench.now = 63
    assert bench.look() == "It needs `it`: checking for it takes longer than 3 s."
    slow.may_answer.set()


@pytest.mark.parametrize("quick", [True, False])
def test_a_check_that_raises_counts_as_missing_and_is_logged(quick: bool, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> bool:
        raise OSError("the secret of the vault")

    class Failing:
        is_quick = True
        looked_for = "trouble"

        def why_missing(self, timeout_s: float) -> str | None:
            return "" if fail() else None

    bench = Bench(Failing() if quick else OwnCheck(fail), remedy="Mend it.")
    bench.look()
    settled(bench)
    assert bench.look() == "It needs `it`: checking for it failed. Mend it."
    assert "the secret of the vault" in caplog.text


@pytest.mark.parametrize("quick", [True, False])
def test_a_check_that_raises_system_exit_counts_as_missing_and_is_repeated(quick: bool) -> None:
    ends = [True]

    def check() -> bool:
        if ends.pop():
            raise SystemExit(3)
        return True

    class Ending:
        is_quick = True
        looked_for = "trouble"

        def why_missing(self, timeout_s: float) -> str | None:
            return None if check() else ""

    bench = Bench(Ending() if quick else OwnCheck(check), missing_lifetime_s=5)
    bench.look()
    settled(bench)
    assert bench.look() == "It needs `it`: checking for it failed."
    ends.append(False)
    bench.now += 6
    bench.look()
    for thread in threading.enumerate():
        if thread.name == "capability it":
            thread.join()
    assert bench.look() is None


def test_a_check_whose_thread_cannot_start_counts_as_missing_and_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    bench = Bench(OwnCheck(lambda: True), missing_lifetime_s=5)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        assert bench.look() == "It needs `it`: checking for it failed."
    bench.now += 6
    bench.look()
    settled(bench)
    assert bench.look() is None


def test_concurrent_callers_start_one_check_and_all_see_quick_results() -> None:
    slow, looks = Slow(may_answer=False), list[str]()
    bench = Bench(Quick([], looks))
    bench.registry.register(needing("box.push", "slow"))
    bench.capabilities.set_up([Capability("it", Quick([], looks)), Capability("slow", OwnCheck(slow))])
    together = threading.Barrier(50)

    def look(_: int) -> str | None:
        together.wait(30)
        return bench.look()

    with ThreadPoolExecutor(50) as pool:
        assert {*pool.map(look, range(50))} == {None}
    slow.may_answer.set()
    until_blocking(lambda: bench.registry.state.findings.why_not(["it", "slow"]) is None, "it answered")
    assert (slow.asked, len(looks)) == (1, 1)


def test_findings_are_published_only_when_they_change() -> None:
    said: list[str] = []
    bench = Bench(Quick(said, []), lifetime_s=1, missing_lifetime_s=1)
    for bench.now in range(5):
        bench.look()
    assert len(bench.published) == 2, "when it was configured, and when it was found"
    said.append("gone")
    for bench.now in range(5, 9):
        bench.look()
    assert len(bench.published) == 3


def test_nothing_is_published_while_no_check_is_due() -> None:
    bench = Bench(Quick([], []), lifetime_s=60)
    bench.look()
    bench.look("own")
    before = bench.handed_over
    for bench.now in (1, 30, 59):
        bench.look()
        bench.look("own")
    assert bench.handed_over == before


def test_newer_findings_are_not_replaced_by_older_findings() -> None:
    registry, newer = registry_of(needing("box.build", "it")), [Capability("it", Quick(["newer"], []))]

    def publish(findings: Findings) -> None:
        if findings.there and newer:
            capabilities.set_up([newer.pop()])
        registry.set_findings(findings)

    capabilities = Capabilities(publish, clock=lambda: 0)
    capabilities.set_up([Capability("it", Quick([], []))])
    capabilities.check(registry.state.needing)
    assert not newer
    assert not registry.state.findings.there


def test_a_listener_may_check_capabilities_during_a_publication() -> None:
    bench = Bench(Quick([], []))
    seen: list[str | None] = []

    def listener(event: Event) -> None:
        if isinstance(event, CatalogPublished):
            seen.append(bench.look())

    bench.registry.subscribe(listener)
    assert bench.look() is None
    assert seen == [None]


def test_an_unchanged_capability_keeps_its_result_and_a_changed_one_is_checked_again() -> None:
    looks: list[str] = []
    check = Quick([], looks)
    bench = Bench(check)
    bench.look()
    bench.capabilities.set_up([Capability("it", check)])
    assert bench.look() is None
    assert len(looks) == 1
    bench.capabilities.set_up([Capability("it", Quick(["gone"], looks))])
    assert bench.look() == "It needs `it`: gone."
    assert len(looks) == 2


def test_the_result_of_a_replaced_check_is_ignored() -> None:
    slow = Slow(may_answer=False)
    bench = Bench(OwnCheck(slow))
    bench.look()
    bench.capabilities.set_up([Capability("it", Quick(["gone"], []))])
    assert bench.look() == "It needs `it`: gone."
    before = [thread for thread in threading.enumerate() if thread.name == "capability it"]
    slow.may_answer.set()
    for thread in before:
        thread.join(30)
    assert bench.look() == "It needs `it`: gone."


def test_capabilities_of_tools_of_one_principal_are_checked_only_for_it() -> None:
    looks: list[str] = []
    bench = Bench(Quick([], []))
    bench.capabilities.set_up([Capability("own", Quick([], looks), lifetime_s=10), Capability("it", Quick([], []))])
    bench.look()
    assert looks == []
    bench.look("own")
    bench.look("own")
    assert len(looks) == 1
    bench.now = 10
    bench.look()
    assert len(looks) == 1, "no caller needs it"
    bench.look("own")
    assert len(looks) == 2


# -- the crib ---------------------------------------------------------------------------------------------------------


def put_program(folder: Path, name: str) -> None:
    (folder / name).write_text("")
    (folder / name).chmod(0o755)


def remove_program(folder: Path, name: str) -> None:
    (folder / name).unlink()


def build() -> str:
    """Build an image of a container."""
    return "built"


def other() -> str:
    """Build a house out of an image."""
    return "a house"


AT_ONCE = {"lifetime_s": 1e-9, "missing_lifetime_s": 1e-9}
"""Checked on every access."""

DOCKER = Capability("docker", ProgramOnPath("docker"), "Install Docker.", **AT_ONCE)
WHY = "It needs `docker`: its program is not on the PATH. Install Docker."


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the only entry of the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def crib(path: Path) -> Toolcrib:
    crib = Toolcrib()
    crib.add_capability(DOCKER)
    crib.add(build, metadata=ToolMetadata(requires_capabilities=("docker",)))
    crib.add(other)
    return crib


def listed(crib: Toolcrib) -> list[str]:
    return [pointer.tool_id for pointer in crib.list(["functions"]).tools]


def found(crib: Toolcrib, **more: Any) -> dict[str, str | None]:
    results = crib.search_tools("build image", **more).results
    return {pointer.tool_id: pointer.unavailable for pointer in results}


def test_a_tool_is_listed_and_found_only_after_its_program_appears(crib: Toolcrib, path: Path) -> None:
    assert listed(crib) == ["functions.other"]
    assert found(crib) == {"functions.other": None}
    assert found(crib, include_unavailable=True) == {"functions.build": WHY, "functions.other": None}
    assert crib.expand_tool("functions.build").obstacle == WHY
    put_program(path, "docker")
    assert listed(crib) == ["functions.build", "functions.other"]
    assert found(crib) == {"functions.build": None, "functions.other": None}
    assert crib.expand_tool("functions.build").obstacle is None


@pytest.mark.anyio
async def test_a_call_is_refused_with_the_remedy_until_the_program_appears(crib: Toolcrib, path: Path) -> None:
    handle = crib.expand_tool("functions.build").handle
    with pytest.raises(CapabilityMissing) as refused:
        await crib.call_tool(handle)
    error = refused.value
    assert error.to_wire()["error"]["code"] == "CAPABILITY_MISSING"
    assert error.message == f"`functions.build` did not run. {WHY}"
    assert error.next_action == NextAction("search_tools", {"query": "Build an image of a container."})
    assert not error.retryable
    put_program(path, "docker")
    assert (await crib.call_tool(handle)).text == "built"


@pytest.mark.anyio
async def test_expansion_is_checked_before_capabilities_and_capabilities_before_arguments(crib: Toolcrib) -> None:
    with pytest.raises(NotExpanded):
        await crib.call_tool("functions.build")
    with pytest.raises(CapabilityMissing):
        await crib.call_tool(crib.expand_tool("functions.build").handle, {"no": "such argument"})


@pytest.mark.anyio
async def test_a_capability_lost_during_an_approval_stops_the_call(path: Path) -> None:
    put_program(path, "docker")
    crib = Toolcrib()
    crib.add_capability(DOCKER)
    ran: list[str] = []
    crib.add(
        lambda: ran.append("it"),
        name="build",
        description="Build.",
        metadata=ToolMetadata(requires_capabilities=("docker",), requires_permission=True),
    )

    class Taking(SilentClient):
        """Approves, and takes the program away."""

        async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            remove_program(path, "docker")
            return {"action": "accept", "content": {"answer": "once"}}

    context = CallContext(LOCAL, client=Taking({"elicitation": {}}))
    with pytest.raises(CapabilityMissing):
        await crib.call_tool(crib.expand_tool("functions.build").handle, context=context)
    assert ProgramOnPath("docker").why_missing(1) is not None, "a person was asked"
    assert ran == []


def test_a_cursor_from_before_a_change_of_capabilities_is_refused(crib: Toolcrib, path: Path) -> None:
    crib.add(build, name="rebuild")
    cursor = crib.list(["functions"], limit=1).next_cursor
    assert cursor is not None
    assert crib.list(["functions"], limit=1, cursor=cursor).tools
    put_program(path, "docker")
    with pytest.raises(InvalidCursor):
        crib.list(["functions"], limit=1, cursor=cursor)


def test_a_view_is_the_same_object_until_capabilities_change(crib: Toolcrib, path: Path) -> None:
    before = crib.view()
    assert crib.view() is before
    put_program(path, "docker")
    assert crib.peek(Principal("local")) is not before
    assert "functions.build" not in crib.view().lacking


def test_a_later_capability_with_the_same_name_replaces_the_earlier_one(crib: Toolcrib) -> None:
    crib.add_capability(Capability("docker", OwnCheck(lambda: True)))
    assert "still checking for it" in crib.view().lacking["functions.build"]


@pytest.mark.anyio
async def test_the_crib_is_ready_after_slow_checks_answer_or_reach_their_deadline() -> None:
    answered, hangs = Slow(may_answer=False), Slow(may_answer=False)
    crib = Toolcrib()
    crib.add(build, metadata=ToolMetadata(requires_capabilities=("gpu",)))
    crib.add(other, metadata=ToolMetadata(requires_capabilities=("hangs",)))
    crib.add_capability(Capability("gpu", OwnCheck(answered), timeout_s=60))
    crib.add_capability(Capability("hangs", OwnCheck(hangs), timeout_s=0.01))
    try:
        async with crib, anyio.create_task_group() as tasks:

            async def let() -> None:
                await until(lambda: answered.asked, "it was asked")
                assert "functions.build" in crib.view().lacking
                answered.may_answer.set()

            tasks.start_soon(let)
            assert await crib.ready(60)
            assert crib.view().lacking == {
                "functions.other": "It needs `hangs`: checking for it takes longer than 0.01 s."
            }
    finally:
        hangs.may_answer.set()


@pytest.mark.anyio
async def test_results_from_a_thread_are_published_in_the_thread_of_the_crib() -> None:
    crib, told_in = Toolcrib(), set[int]()
    crib.add(build, metadata=ToolMetadata(requires_capabilities=("gpu",)))
    crib.add_capability(Capability("gpu", OwnCheck(lambda: True)))
    async with crib:
        crib.registry.subscribe(lambda event: told_in.add(threading.get_ident()))
        assert await crib.ready(60)
        assert crib.registry.state.findings.there == {"gpu"}
    assert told_in == {threading.get_ident()}


@pytest.mark.anyio
async def test_a_reload_applies_changed_capabilities_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.crib.following.POLL_S", 0.01)
    monkeypatch.setenv("TOOLCRIB_TEST_4B", "x")

    def written(variable: str) -> dict[str, Any]:
        return {"capabilities": {"token": {"env": variable, "remedy": "Set it."}}}

    file = write_config(tmp_path / "mcp.json", toolcrib=written("TOOLCRIB_TEST_4B"))
    crib = Toolcrib()
    crib.add(build, metadata=ToolMetadata(requires_capabilities=("token",)))
    config = crib.add_config(file)
    async with crib, anyio.create_task_group() as tasks:
        tasks.start_soon(crib.follow, config)
        await anyio.wait_all_tasks_blocked()
        assert crib.view().lacking == {}
        write_config(file, toolcrib=written("TOOLCRIB_NO_4B"))
        await until(lambda: crib.view().lacking, "the file was taken over")
        why = "It needs `token`: its environment variable is not set. Set it."
        assert crib.view().lacking == {"functions.build": why}
        write_config(file, toolcrib={})
        await until(lambda: "is configured" in crib.view().lacking["functions.build"], "the file was taken over")
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_tools_of_an_isolated_source_can_need_capabilities(tmp_path: Path, path: Path) -> None:
    ours: dict[str, Any] = {
        "sources": {"desk": {"isolation": "principal", "principals": {"ada": {}}}},
        "tools": {"desk.echo": {"requires_capabilities": ["docker"]}},
    }
    crib = Toolcrib()
    crib.add_config(write_config(tmp_path / "mcp.json", toolcrib=ours, desk=faulty_entry()))
    crib.add_capability(DOCKER)
    async with crib:
        assert await crib.ready(30, principal=ADA)
        assert crib.view(ADA).lacking == {"desk.echo": WHY}
        assert crib.view(BOB).lacking == {}
        context = CallContext(ADA)
        handle = crib.expand_tool("desk.echo", context=context).handle
        with pytest.raises(CapabilityMissing):
            await crib.call_tool(handle, {"text": "x"}, context=context)
        put_program(path, "docker")
        assert crib.view(ADA).lacking == {}
