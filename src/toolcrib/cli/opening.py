"""Open the catalog that a command was pointed at, and show on standard error what is still starting."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import click
import platformdirs
from click.core import ParameterSource

from toolcrib.cli.approvals import default_approvals
from toolcrib.cli.output import plain, stderr
from toolcrib.cli.places import store_of
from toolcrib.config import read_config
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.principal import LOCAL, Principal
from toolcrib.crib import Toolcrib
from toolcrib.stores.approvals import ApprovalStore
from toolcrib.stores.pins import PinStore
from toolcrib.stores.vectors import VectorStore

REFRESH_S = 0.1

SHOWN_ASIDE = 5
"""Definitions that could not be used and are told of one by one."""


def pins_of(config: Path) -> PinStore:
    """What was approved of the tools in `config`."""
    return PinStore(platformdirs.user_state_path("toolcrib") / "pins.sqlite", config)


def default_vectors() -> Path:
    """Where the vectors of tools are kept unless somebody says otherwise."""
    return platformdirs.user_cache_path("toolcrib") / "vectors.sqlite"


@asynccontextmanager
async def opened(
    config: Path,
    tools: Path | None,
    *,
    wait_s: float,
    wanted: Callable[[str], bool] | None = None,
    bundle: str | None = None,
    searched: bool = False,
    tells_of_quarantine: bool = True,
    principal: Principal = LOCAL,
    sees_all: bool = False,
) -> AsyncGenerator[Toolcrib]:
    """A crib of the servers in `config`, or of the definitions in `tools`, once all have listed or `wait_s` is over.

    With `wanted`, only the servers and plugins of such names are started. Nothing exists in it but what `bundle` holds.
    Where it is to be `searched`, the model and the past that the configuration names count, and over `tools` all that
    it says of searching, if somebody named one. Unless the command does so itself, standard error tells of definitions
    that are kept away. It also says where the policy hides everything from `principal`, unless the command `sees_all`.

    Raises:
        InvalidConfig: the file cannot be used.
        UnknownBundle: no bundle is called so.
    """
    registrations = store_of(config) if tools is None else None
    with closing(VectorStore(default_vectors())) as vectors:
        crib = Toolcrib(
            approvals=ApprovalStore(default_approvals()),
            registrations=registrations,
            pins=pins_of(config) if tools is None else None,
            vectors=vectors,
        )
        if not searched:
            crib.insights.rest()
        if tools is not None:
            from toolcrib.sources.catalog_file import load_catalog_file

            for source in load_catalog_file(tools):
                crib.add_source(source)
            if searched and is_config_named():
                said = read_config(config)
                crib.registry.set_weights(said.search.weights)
                crib.insights.heed(said)
        else:
            crib.add_config(config, wanted)
        if bundle is not None:
            crib.confine(bundle)
        async with crib:
            await _wait(crib, wait_s, principal)
            if await crib.guard.has_turned():  # by now it is known what each tool stands beside
                await crib.judge_again()
            if tells_of_quarantine:
                _tell_of_quarantine(crib)
            if not sees_all and (told := told_of_hidden(crib, principal, is_part=wanted is not None)):
                stderr.print(plain(told), markup=False, style="yellow")
            if tools is not None:
                _tell_of_set_aside(crib, tools)
            yield crib


def told_of_hidden(crib: Toolcrib, principal: Principal, *, is_part: bool = False) -> str | None:
    """A sentence for the owner where the policy hides everything that was listed from `principal`.

    `is_part`: only some of the configured sources were started, so it names those.
    """
    if not (count := crib.hidden_entirely(principal)):
        return None
    tools = "the only tool" if count == 1 else f"all {count} tools"
    of = f" of {', '.join(crib.registry.state.sources)}" if is_part else ""
    return f"The policy hides {tools}{of} from the principal `{principal.id}`."


def principal_called(name: str | None, config: Path, tools: Path | None) -> Principal:
    """The principal `name`, with the scopes of its first token in `config`; whoever runs this command for None.

    Raises:
        InvalidConfig: the file cannot be used.
    """
    if name is None or name == LOCAL.id:
        return LOCAL
    tokens = read_config(config).auth.tokens if tools is None else ()
    return next((token.principal for token in tokens if token.principal.id == name), Principal(name))


def is_config_named() -> bool:
    """Whether whoever runs this command said which configuration, and did not only leave it at the default."""
    context = click.get_current_context()
    if context.params.get("argument") is not None:
        return True
    return context.get_parameter_source("config") in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


async def until_understood(crib: Toolcrib, wait_s: float) -> None:
    """Until every tool has its vector and the past is known, or `wait_s` is over."""
    with stderr.status("embedding what tools say"):
        is_settled = await crib.insights.settled(wait_s)
    embedding = crib.insights.embedding
    if embedding is not None and (problem := embedding.condition.problem) is not None:
        stderr.print(f"By words alone: {plain(problem)}.", markup=False, style="yellow")
    elif not is_settled:
        stderr.print(
            "Not waiting any longer for vectors and the past; words alone count where they lack.", style="yellow"
        )


def _tell_of_quarantine(crib: Toolcrib) -> None:
    entries = {**crib.registry.state.sources, **crib.lockers.open_overlay(LOCAL.id).sources}.values()
    judged = [each for entry in entries for each in entry.judgements.values() if each.shown is not each.tool]
    if judged:
        hidden = sum(each.shown is None for each in judged)
        counts = {"hidden": hidden, "shown as approved": len(judged) - hidden}
        told = ", ".join(f"{count} {how}" for how, count in counts.items() if count)
        stderr.print(f"Definitions in quarantine: {told}; `toolcrib drift` says why.", style="yellow")


def _tell_of_set_aside(crib: Toolcrib, tools: Path) -> None:
    aside = [aside for entry in crib.view().sources.values() for aside in entry.set_aside]
    for each in aside[:SHOWN_ASIDE]:
        stderr.print(f"Set aside: {plain(each.name[:80])}: {plain(each.reason)}", markup=False, style="yellow")
    if len(aside) > SHOWN_ASIDE:
        stderr.print(f"… and {len(aside) - SHOWN_ASIDE} more definitions are set aside.", style="yellow")
    if not crib.view().tools:
        raise InvalidConfig(f"{tools}: there is no definition in it that can be used")


async def _wait(crib: Toolcrib, wait_s: float, principal: Principal) -> None:
    """Wait for what `principal` has to be ready, naming on a terminal the servers it waits for."""
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
        stderr.print(f"Not waiting any longer for {', '.join(starting)}.", style="yellow")


def _starting(crib: Toolcrib, principal: Principal) -> tuple[str, ...]:
    return *crib.starting, *crib.lockers.starting(principal)
