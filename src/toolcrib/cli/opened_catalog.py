"""Opens the catalog that a command works on, and shows on standard error which servers are still starting."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import platformdirs

from toolcrib.cli.options import is_config_named
from toolcrib.cli.secret_command import ask_for_inputs
from toolcrib.cli.terminal_output import plain, stderr
from toolcrib.config import read_config
from toolcrib.config.registration_store import RegistrationStore
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.principal import LOCAL, Principal
from toolcrib.crib.crib import Toolcrib
from toolcrib.definitions.pins import PinStore
from toolcrib.operations.calling.approval_store import ApprovalStore
from toolcrib.search.vector_store import VectorStore
from toolcrib.secrets.keys import seal
from toolcrib.sources.mcp.oauth.grants import GrantStore
from toolcrib.waiting import WaitingStore

REFRESH_S = 0.1

SHOWN_IGNORED = 5
"""How many ignored definitions are listed one by one."""


def default_approvals() -> Path:
    """Return the default path of the permanent approvals."""
    return platformdirs.user_state_path("toolcrib") / "approvals.sqlite"


def waiting_items() -> WaitingStore:
    """Return the store of the calls that wait for a person."""
    return WaitingStore(platformdirs.user_state_path("toolcrib") / "waiting.sqlite", seal)


def default_registrations() -> Path:
    """Return the default path of the registrations."""
    return platformdirs.user_state_path("toolcrib") / "registrations.sqlite"


def default_cache() -> Path:
    """Return the default path of the cache of tool definitions."""
    return platformdirs.user_cache_path("toolcrib") / "definitions.sqlite"


def default_vectors() -> Path:
    """Return the default path of the embeddings of tools."""
    return platformdirs.user_cache_path("toolcrib") / "vectors.sqlite"


def default_grants() -> GrantStore:
    """Return the store of the sign-ins to servers."""
    return GrantStore(platformdirs.user_state_path("toolcrib") / "grants.sqlite", seal)


def registrations_of(config: Path) -> RegistrationStore:
    """Return the store of what is registered for `config`."""
    return RegistrationStore(default_registrations(), config)


def pins_of(config: Path) -> PinStore:
    """Return the store of the pins for `config`."""
    return PinStore(platformdirs.user_state_path("toolcrib") / "pins.sqlite", config)


@asynccontextmanager
async def opened(
    config: Path,
    tools: Path | None,
    *,
    wait_s: float,
    wanted: Callable[[str], bool] | None = None,
    bundle: str | None = None,
    searched: bool = False,
    reports_quarantine: bool = True,
    principal: Principal = LOCAL,
    sees_all: bool = False,
) -> AsyncGenerator[Toolcrib]:
    """Yield a `Toolcrib` with the servers of `config`, or with the definitions in `tools`.

    It is yielded when all sources have listed their tools, or after `wait_s`. With `wanted`, only servers and plugins
    with accepted names start. With `bundle`, only the tools of that bundle exist. With `searched`, search uses the
    configured embedding model and history. Together with `tools`, it uses all search settings of the configuration, if
    one was named. With `reports_quarantine`, quarantined definitions are reported on standard error. If the policy
    hides everything from `principal`, that is reported there too, except with `sees_all`. At a terminal, a person is
    asked for inputs of the servers that have no value yet.

    Raises:
        InvalidConfig: the file cannot be used.
        UnknownBundle: the bundle does not exist.
    """
    registrations = registrations_of(config) if tools is None else None
    with closing(VectorStore(default_vectors())) as vectors:
        crib = Toolcrib(
            approvals=ApprovalStore(default_approvals()),
            waiting=waiting_items(),
            registrations=registrations,
            pins=pins_of(config) if tools is None else None,
            vectors=vectors,
            grants=default_grants(),
        )
        if not searched:
            crib.knowledge.rest()
        if tools is not None:
            from toolcrib.sources.catalog_file import load_catalog_file

            for source in load_catalog_file(tools):
                crib.add_source(source)
            if searched and is_config_named():
                said = read_config(config)
                crib.registry.set_weights(said.search.weights)
                crib.knowledge.apply(said)
        else:
            ask_for_inputs(config, wanted)
            crib.add_config(config, wanted)
        if bundle is not None:
            crib.confine(bundle)
        async with crib:
            await _wait(crib, wait_s, principal)
            if await crib.guard.has_changed():  # only now all tools are known that a definition can be confused with
                await crib.rejudge()
            if reports_quarantine:
                _report_quarantine(crib)
            if not sees_all and (text := hidden_warning(crib, principal, is_part=wanted is not None)):
                stderr.print(plain(text), markup=False, style="yellow")
            if tools is not None:
                _report_ignored(crib, tools)
            yield crib


def hidden_warning(crib: Toolcrib, principal: Principal, *, is_part: bool = False) -> str | None:
    """Return a sentence for the owner if the policy hides everything that was listed from `principal`, else None.

    With `is_part`, only some of the configured sources were started, so the sentence names them.
    """
    if not (count := crib.hidden_entirely(principal)):
        return None
    tools = "the only tool" if count == 1 else f"all {count} tools"
    of = f" of {', '.join(crib.registry.state.sources)}" if is_part else ""
    return f"The policy hides {tools}{of} from the principal `{principal.id}`."


def principal_called(name: str | None, config: Path, tools: Path | None) -> Principal:
    """Return the principal `name`, with the scopes of its first token in `config`. None means the local principal.

    Raises:
        InvalidConfig: the file cannot be used.
    """
    if name is None or name == LOCAL.id:
        return LOCAL
    tokens = read_config(config).auth.tokens if tools is None else ()
    return next((token.principal for token in tokens if token.principal.id == name), Principal(name))


async def until_understood(crib: Toolcrib, wait_s: float) -> None:
    """Wait until all tools are embedded and the history is loaded, or until `wait_s` is over."""
    with stderr.status("embedding tools"):
        is_settled = await crib.knowledge.settled(wait_s)
    embedding = crib.knowledge.embedding
    if embedding is not None and (problem := embedding.condition.problem) is not None:
        stderr.print(f"Searching by words only: {plain(problem)}.", markup=False, style="yellow")
    elif not is_settled:
        stderr.print(
            "Timed out while waiting for embeddings and history. Tools without them are found by their words only.",
            style="yellow",
        )


def _report_quarantine(crib: Toolcrib) -> None:
    entries = {**crib.registry.state.sources, **crib.isolated_sources.open_overlay(LOCAL.id).sources}.values()
    judged = [each for entry in entries for each in entry.judgements.values() if each.shown is not each.tool]
    if judged:
        hidden = sum(each.shown is None for each in judged)
        counts = {"hidden": hidden, "shown as pinned": len(judged) - hidden}
        text = ", ".join(f"{count} {how}" for how, count in counts.items() if count)
        stderr.print(f"Quarantined definitions: {text}. Run `toolcrib drift` to see why.", style="yellow")


def _report_ignored(crib: Toolcrib, tools: Path) -> None:
    aside = [aside for entry in crib.view().sources.values() for aside in entry.set_aside]
    for each in aside[:SHOWN_IGNORED]:
        stderr.print(f"Ignored: {plain(each.name[:80])}: {plain(each.reason)}", markup=False, style="yellow")
    if len(aside) > SHOWN_IGNORED:
        stderr.print(f"… and {len(aside) - SHOWN_IGNORED} more definitions are ignored.", style="yellow")
    if not crib.view().tools:
        raise InvalidConfig(f"{tools}: contains no usable tool definition")


async def _wait(crib: Toolcrib, wait_s: float, principal: Principal) -> None:
    """Wait until the sources of `principal` are ready. On a terminal, name the servers that are still starting."""
    with stderr.status("") as status:
        async with anyio.create_task_group() as tasks:

            async def show() -> None:
                while True:
                    status.update(f"starting {', '.join(_starting(crib, principal)[:6])}")
                    await anyio.sleep(REFRESH_S)

            tasks.start_soon(show)
            await crib.ready(wait_s, principal=principal)
            tasks.cancel_scope.cancel()
    if starting := _starting(crib, principal):
        stderr.print(f"Timed out while waiting for: {', '.join(starting)}.", style="yellow")


def _starting(crib: Toolcrib, principal: Principal) -> tuple[str, ...]:
    return *crib.starting, *crib.isolated_sources.starting(principal)
