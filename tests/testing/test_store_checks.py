"""The published contract checks of stores: all shipped stores pass, and each broken rule is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from toolcrib.config.registration_store import Change, Registration, RegistrationStore
from toolcrib.core.errors import InvalidConfig
from toolcrib.operations.calling.approval_store import ApprovalStore
from toolcrib.operations.calling.approver import MemoryApprovals
from toolcrib.sources.definition_cache import CachedDefinitions, DefinitionStore
from toolcrib.testing.stores import check_approvals, check_definitions, check_registrations

# -- approvals --------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_the_shipped_approval_stores_pass_their_contract_check(tmp_path: Path) -> None:
    await check_approvals(lambda: ApprovalStore(tmp_path / "approvals.sqlite"))
    memory = MemoryApprovals()
    await check_approvals(lambda: memory)


class Approving(MemoryApprovals):
    async def holds(self, principal: str, tool_id: str, definition: str) -> bool:
        return True


class IgnoringPrincipal(MemoryApprovals):
    async def holds(self, principal: str, tool_id: str, definition: str) -> bool:
        return any((each, tool_id, definition) in self._kept for each in ("ada", "grace", principal))


class Joining(MemoryApprovals):
    async def holds(self, principal: str, tool_id: str, definition: str) -> bool:
        return ".".join((principal, tool_id, definition)) in {".".join(each) for each in self._kept}


class Forgetting(MemoryApprovals):
    async def keep(self, principal: str, tool_id: str, definition: str) -> None:
        self._kept = {(principal, tool_id, definition)}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("store", "complaint"),
    [
        (Approving(), "never approved by anyone"),
        (IgnoringPrincipal(), "is approved, but only"),
        (Joining(), "is approved, but only"),
        (Forgetting(), "concurrent approvals were lost"),
    ],
)
async def test_an_approval_store_that_breaks_the_contract_fails(store: MemoryApprovals, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        await check_approvals(lambda: store)


@pytest.mark.anyio
async def test_approvals_that_do_not_persist_fail() -> None:
    with pytest.raises(AssertionError, match="opened again"):
        await check_approvals(MemoryApprovals)


# -- definitions ------------------------------------------------------------------------------------------------------


class MemoryDefinitions:
    def __init__(self) -> None:
        self.kept: dict[str, CachedDefinitions] = {}

    def key(self, address: Mapping[str, Any]) -> str:
        return str(hash(str(sorted(address.items()))))

    def load(self, key: str) -> CachedDefinitions | None:
        return self.kept.get(key)

    def save(self, key: str, kept: CachedDefinitions) -> None:
        self.kept[key] = kept

    def forget(self, key: str) -> None:
        self.kept.pop(key, None)


def test_the_shipped_definition_store_passes_its_contract_check(tmp_path: Path) -> None:
    with ExitStack() as opened:
        check_definitions(lambda: opened.enter_context(DefinitionStore(tmp_path / "definitions.sqlite")))
    memory = MemoryDefinitions()
    check_definitions(lambda: memory)


class Telling(MemoryDefinitions):
    def key(self, address: Mapping[str, Any]) -> str:
        return str(sorted(address.items()))


class Unsorted(MemoryDefinitions):
    def key(self, address: Mapping[str, Any]) -> str:
        return str(hash(str(address)))


class OneKey(MemoryDefinitions):
    def key(self, address: Mapping[str, Any]) -> str:
        return str(address["command"])


class Shortening(MemoryDefinitions):
    def save(self, key: str, kept: CachedDefinitions) -> None:
        super().save(key, CachedDefinitions(kept.listed_at, kept.body[:1_000]))


class Rounding(MemoryDefinitions):
    def save(self, key: str, kept: CachedDefinitions) -> None:
        super().save(key, CachedDefinitions(int(kept.listed_at), kept.body))


class Keeping(MemoryDefinitions):
    def forget(self, key: str) -> None:
        """Do nothing."""


class Emptying(MemoryDefinitions):
    def forget(self, key: str) -> None:
        self.kept.clear()


@pytest.mark.parametrize(
    ("store", "complaint"),
    [
        (Telling(), "contains a secret"),
        (Unsorted(), "depends on the order of an address"),
        (OneKey(), "the same key"),
        (Shortening(), "differs from the saved one"),
        (Rounding(), "differs from the saved one"),
        (Keeping(), "a deleted entry is loaded"),
        (Emptying(), "deleting an entry changes a different entry"),
    ],
)
def test_a_definition_store_that_breaks_the_contract_fails(store: MemoryDefinitions, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_definitions(lambda: store)


def test_definitions_that_do_not_persist_fail() -> None:
    with pytest.raises(AssertionError, match="opened again"):
        check_definitions(MemoryDefinitions)


# -- registrations ----------------------------------------------------------------------------------------------------


def test_the_shipped_registration_store_passes_its_contract_check(tmp_path: Path) -> None:
    path = tmp_path / "registrations.sqlite"
    check_registrations(lambda: RegistrationStore(path))
    check_registrations(lambda: RegistrationStore(path, tmp_path / "mcp.json"))


Rows = tuple[Registration, ...]


class Broken(RegistrationStore):
    """A correct store, until a subclass overrides a method."""


class SameVersion(Broken):
    def version(self) -> str | None:
        return super().version() and "1"


class OwnVersion(Broken):
    def version(self) -> str | None:
        return (version := super().version()) and f"{version}{id(self)}"


class NewVersion(Broken):
    def update(self, change: Change) -> Rows:
        after = super().update(change)
        super().update(lambda rows: (*rows, Registration("x", "x", "")))
        super().update(lambda rows: [row for row in rows if row.kind != "x"])
        return after


class Reordering(Broken):
    def all(self) -> Rows:
        return tuple(sorted(super().all(), key=lambda row: row.body))

    def update(self, change: Change) -> Rows:
        super().update(change)
        return self.all()


class OneKind(Broken):
    def update(self, change: Change) -> Rows:
        return super().update(lambda rows: {row.name: row for row in change(rows)}.values())


class Adding(Broken):
    def update(self, change: Change) -> Rows:
        return super().update(lambda rows: {row.key: row for row in (*rows, *change(rows))}.values())


class Swallowing(Broken):
    def update(self, change: Change) -> Rows:
        try:
            return super().update(change)
        except Exception as error:
            if isinstance(error, InvalidConfig):
                raise
            return self.all()


class Halfway(Broken):
    def update(self, change: Change) -> Rows:
        wanted = [*change(self.all())]
        for number in range(len(wanted)):
            super().update(lambda rows, number=number: (*rows, wanted[number]))
        return super().update(lambda _: wanted)


class Racing(Broken):
    def update(self, change: Change) -> Rows:
        """Compute the change outside of the transaction, so that a concurrent change is lost."""
        wanted: Iterable[Registration] = [*change(self.all())]
        return super().update(lambda _: wanted)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (SameVersion, "does not change the version"),
        (OwnVersion, "see different versions"),
        (NewVersion, "a change without effect changes the version|different versions"),
        (Reordering, "stored in order|keep its place"),
        (OneKind, "of different kinds with the same name"),
        (Adding, "that a change leaves out is still stored"),
        (Swallowing, "an error raised in a change is not raised to the caller"),
        (Halfway, "a failed change was partly stored"),
        (Racing, "concurrent changes was lost"),
    ],
)
def test_a_registration_store_that_breaks_the_contract_fails(
    kind: Callable[[Path], RegistrationStore], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_registrations(lambda: kind(tmp_path / "registrations.sqlite"))
