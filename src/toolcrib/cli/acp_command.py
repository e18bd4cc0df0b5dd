"""`toolcrib acp`: run as an agent in an editor that speaks ACP."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click
import platformdirs

from toolcrib.agent.conversation_store import ConversationStore
from toolcrib.catalog.access import CAREFUL
from toolcrib.cli.opened_catalog import default_cache, default_grants, default_vectors, pins_of, registrations_of
from toolcrib.cli.options import FILE, no_audit_option
from toolcrib.cli.serve_command import audited
from toolcrib.cli.terminal_output import asynchronous, log_warnings, plain, stderr
from toolcrib.config import read_config
from toolcrib.core.errors import InvalidConfig
from toolcrib.crib.crib import Toolcrib
from toolcrib.search.vector_store import VectorStore
from toolcrib.sources.definition_cache import DefinitionStore

if TYPE_CHECKING:
    from pydantic_ai.models import Model

SCRIPTED = "scripted:"

_NAME_ONE = "Pass --model PROVIDER:MODEL and set the provider's API key, or use scripted:FILE to run without a model."


@click.command()
@click.argument("config", metavar="[CONFIG]", type=FILE, required=False)
@click.option(
    "--model",
    metavar="MODEL",
    required=True,
    envvar="TOOLCRIB_MODEL",
    show_envvar=True,
    help="A Pydantic AI model name, such as openai:gpt-5, or scripted:FILE to run a script without a model.",
)
@click.option("--bundle", metavar="NAME", help="Use only the tools of this bundle of CONFIG.")
@click.option("--no-sessions", is_flag=True, help="Do not save conversations. They cannot be loaded later.")
@no_audit_option
@asynchronous
async def acp(config: Path | None, model: str, bundle: str | None, *, no_sessions: bool, no_audit: bool) -> None:
    """Run as an agent in an editor that speaks the Agent Client Protocol, on standard input and output.

    When a conversation starts, Toolcrib finds out what the editor offers: files, terminals, its own tools and MCP
    servers. The agent finds all of these, and the tools of CONFIG if you pass one, through the same four operations.
    The editor asks you before a tool runs that may change something. This needs the extra `acp`, and the packages that
    Pydantic AI needs for your MODEL.

    \b
      {"agent_servers": {"Toolcrib": {"command": "toolcrib", "args": ["acp", "--model", "openai:gpt-5"]}}}
    """
    if bundle is not None and config is None:
        raise click.UsageError("--bundle needs a CONFIG: the bundle is defined there.")
    log_warnings()
    store = (
        None if no_sessions else ConversationStore(platformdirs.user_state_path("toolcrib") / "conversations.sqlite")
    )

    chosen = _model(model)
    from toolcrib.surfaces.acp_agent.agent import Setup
    from toolcrib.surfaces.acp_agent.serving import serve_stdio

    if sys.stdin.isatty():
        stderr.print("Toolcrib is waiting for an editor that speaks ACP. Configure it there, or press Ctrl-C to stop.")
    if config is None:
        async with Toolcrib(policy=CAREFUL) as crib:
            await serve_stdio(Setup(crib, chosen, store=store))
        return
    from toolcrib.sources.mcp.connection import stop_servers_quickly

    stop_servers_quickly()  # an editor waits only a short time for the agent to exit
    with audited(config, no_audit=no_audit) as audit, closing(VectorStore(default_vectors())) as vectors:
        crib = Toolcrib(
            policy=CAREFUL if read_config(config).policy is None else None,
            definitions=DefinitionStore(default_cache()),
            registrations=registrations_of(config),
            pins=pins_of(config),
            vectors=vectors,
            grants=default_grants(),
            record=None if audit is None else audit.record,
        )
        read = crib.add_config(config)
        if bundle is not None:
            _ = crib.bundles[bundle]  # fail now if the bundle does not exist: every conversation would fail later
        async with crib, anyio.create_task_group() as tasks:
            tasks.start_soon(crib.follow, read)
            await serve_stdio(Setup(crib, chosen, bundle=bundle, store=store))
            tasks.cancel_scope.cancel()


def _model(name: str) -> Model:
    """Return the model called `name`, or a model that plays a script.

    Raises:
        InvalidConfig: the model is unknown, or cannot be used here.
    """
    try:
        import acp as _  # noqa: F401  fails early if the protocol's package is not installed
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
    except ImportError as error:
        raise InvalidConfig(f"`toolcrib acp` needs `{error.name}`: pip install 'toolcrib[acp]'") from error
    if name.startswith(SCRIPTED):
        from toolcrib.adapters.pydantic_ai.model_script import scripted_model

        return scripted_model(Path(name.removeprefix(SCRIPTED)))
    try:
        return infer_model(name)
    except (UserError, ImportError, ValueError) as error:
        raise InvalidConfig(f"cannot use the model `{name}`: {plain(str(error))}", hints=[_NAME_ONE]) from error
