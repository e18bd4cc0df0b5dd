"""`toolcrib serve`: serve the tools of an mcp.json or of a Python program over MCP."""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from toolcrib.audit.audit_file import DAY_S
from toolcrib.audit.redaction import Redaction
from toolcrib.audit.store import AuditStore
from toolcrib.cli.opened_catalog import (
    default_approvals,
    default_cache,
    default_grants,
    default_vectors,
    hidden_warning,
    pins_of,
    registrations_of,
    waiting_items,
)
from toolcrib.cli.options import FILE, config_either_way, no_audit_option, operations_option
from toolcrib.cli.secret_command import ask_for_inputs
from toolcrib.cli.terminal_output import fail, log_warnings, plain, run, stderr
from toolcrib.config import Config, read_config
from toolcrib.core.errors import BundleIncomplete, InvalidConfig, NotFound
from toolcrib.core.principal import LOCAL, Principal
from toolcrib.core.values import did_you_mean
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations.calling.approval_store import ApprovalStore
from toolcrib.search.vector_store import VectorStore
from toolcrib.sources.definition_cache import DefinitionStore

logger = logging.getLogger(__name__)

_PROGRAM = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)")
"""`package.module:name`."""


@contextmanager
def _collecting_no_garbage() -> Generator[None]:
    """Turn garbage collection off, until the gateway is ready and `_look_for_garbage` turns it on.

    Almost everything that a start allocates stays alive. Searching it for garbage again and again takes an eighth of
    the time to the first answer.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@click.command()
@config_either_way
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve over HTTP on this address: MCP at /mcp, the HTTP API at /v1. A port alone means 127.0.0.1.",
)
@operations_option(
    "[compact|full|guarded|discovery|all|NAME,NAME...]",
    "Which tools a client sees: `compact` (four), `full` (six), `guarded` (adds call_read_only_tool), "
    "`discovery` (has list_categories instead of list), `all` (every tool, for clients that search by themselves), "
    "or the operations that you name, such as list,search_tools,expand_tool.",
)
@click.option(
    "--cache",
    metavar="FILE",
    type=FILE,
    envvar="TOOLCRIB_CACHE",
    show_envvar=True,
    help="Where to cache tool definitions. Default: your system's cache folder.",
)
@click.option("--no-cache", is_flag=True, help="Do not cache definitions. Start every server immediately.")
@click.option("--bundle", metavar="NAME", help="Serve only the tools of this bundle.")
@no_audit_option
@_collecting_no_garbage()
def serve(
    config: Path,
    http: str | None,
    operations: str,
    cache: Path | None,
    *,
    bundle: str | None,
    no_cache: bool,
    no_audit: bool,
) -> None:
    """Serve the tools of CONFIG's servers over MCP, on standard input and output or over HTTP.

    A client sees four tools: list, search_tools, expand_tool and call_tool. You can edit CONFIG while the gateway runs:
    the gateway applies the changes. The gateway caches tool definitions. So after its first start, it starts a server
    only when a tool of that server is called. To use the gateway, replace the servers in your client's
    configuration with this entry:

    \b
      {"mcpServers": {"toolcrib": {"command": "toolcrib", "args": ["serve", "/path/to/mcp.json"]}}}

    CONFIG can also be MODULE:NAME, for a Toolcrib object called NAME in your Python module. Then the options for the
    cache and the audit do not apply.
    """
    if (named := _PROGRAM.fullmatch(str(config))) is not None and not config.exists():
        log_warnings()
        gc.enable()
        run(partial(_serve_program, named[1], named[2], http, operations, bundle=bundle), as_json=False)
        return
    if (module := _module_meant(config)) is not None:
        text = f"{config}: this is a Python module. Name the Toolcrib object in it, for example `{module}:crib`"
        fail(InvalidConfig(text), as_json=False)
    config = _in_project(config)
    log_warnings()
    definitions = None if no_cache else DefinitionStore(cache or default_cache())
    vectors = None if no_cache else VectorStore(default_vectors())

    def opened(audit: AuditStore | None) -> Toolcrib:
        return Toolcrib(
            definitions=definitions,
            approvals=ApprovalStore(default_approvals()),
            waiting=waiting_items(),
            registrations=registrations_of(config),
            pins=pins_of(config),
            vectors=vectors,
            grants=default_grants(),
            record=None if audit is None else audit.record,
        )

    def kept_within(crib: Toolcrib, principal: Principal | None) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """Limit `crib` to the bundle, if one is named. Returns a function that reports what the bundle is missing."""
        if bundle is None:
            return None
        crib.confine(bundle)
        return partial(_report_if_incomplete, crib, bundle, principal)

    async def over_pipes() -> None:
        from toolcrib.surfaces.mcp_gateway.stdio import serve_stdio

        _say_waiting()
        with audited(config, no_audit=no_audit) as audit:
            crib = opened(audit)
            read = crib.add_config(config)
            _look_for_garbage()
            report_bundle = kept_within(crib, LOCAL)

            async def alongside() -> None:
                if report_bundle is not None:
                    await report_bundle()
                await _warn_if_hidden(crib, read)

            await serve_stdio(crib, read, exposed=operations, alongside=alongside)

    async def over_http() -> None:
        from toolcrib.surfaces.http.accepted_hosts import Address
        from toolcrib.surfaces.http.http_serving import serve_http

        address = Address.parse(http or "")
        with audited(config, no_audit=no_audit) as audit:
            crib = opened(audit)
            ask_for_inputs(config)
            read = crib.add_config(config)
            _look_for_garbage()
            await serve_http(
                crib,
                read,
                address,
                _say_where,
                exposed=operations,
                audit_events_lost=lambda: 0 if audit is None else audit.condition.lost,
                alongside=kept_within(crib, None if read.auth.is_required else LOCAL),
            )

    with closing(vectors) if vectors is not None else nullcontext():
        run(over_http if http else over_pipes, as_json=False)


def _module_meant(config: Path) -> str | None:
    """Return the module in the current folder that `config` names by its dotted name or its file, or None."""
    named = str(config).removesuffix(".py").replace(os.sep, ".")
    file = Path(*named.split("."))
    if not _PROGRAM.fullmatch(f"{named}:crib") or (config.exists() and config.suffix != ".py"):
        return None
    return named if file.with_suffix(".py").is_file() or (file / "__init__.py").is_file() else None


async def _serve_program(module: str, name: str, http: str | None, operations: str, *, bundle: str | None) -> None:
    """Serve the Toolcrib object of a module. The program itself decides what is stored and audited."""
    crib = _crib_of(module, name)
    if bundle is not None:
        crib.confine(bundle)
    if http is None:
        _say_waiting()
        await crib.serve_stdio(operations=operations)
    else:
        await crib.serve_http(http, operations=operations, listening=_say_where)


def _crib_of(module: str, name: str) -> Toolcrib:
    """Import a module, from the current folder first, and return its Toolcrib object called `name`.

    Raises:
        NotFound: the module does not exist, or has no such object. The message suggests a similar name.
    """
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or f"{module}.".startswith(f"{error.name}."):
            raise NotFound(f"module `{module}` not found, neither here nor in the installed packages") from error
        raise
    cribs = [key for key, value in vars(found).items() if isinstance(value, Toolcrib)]
    crib = getattr(found, name, None)
    if not isinstance(crib, Toolcrib):
        meant = did_you_mean(name, cribs) or (f"; it has: {', '.join(cribs)}" if cribs else "")
        raise NotFound(f"`{module}` has no Toolcrib object called `{name}`{meant}")
    return crib


def _say_waiting() -> None:
    """Tell a person at a terminal that a client is missing."""
    if sys.stdin.isatty():
        stderr.print(
            "Toolcrib is waiting for an MCP client on standard input. "
            "Configure it in your client, or press Ctrl-C to stop."
        )


def _say_where(url: str) -> None:
    stderr.print(f"Toolcrib serves {url}", markup=False)


def _in_project(config: Path) -> Path:
    """Return the path of the configuration, in this folder or in the project of the Claude Code that started us.

    A shared file names the configuration by its path in the project, but Claude Code may have been started in a
    folder below it.
    """
    project = os.environ.get("CLAUDE_PROJECT_DIR")
    if not project or config.exists() or not (there := project / config).exists():
        return config
    return there


def _look_for_garbage() -> None:
    """Turn garbage collection on, except for objects that exist now: scanning them would delay the first answer."""
    gc.freeze()
    # The default thresholds scan all objects once a second under load. Each connection or open question has about 200.
    gc.set_threshold(700, 10, 40)
    gc.enable()


async def _warn_if_hidden(crib: Toolcrib, config: Config) -> None:
    """When the shared servers are ready, log a warning if the policy hides all their tools from `local`.

    An isolated server of `local` starts with the first request of `local`. If there is one, nothing is logged, because
    its tools are not known yet.
    """
    if any(server.isolation == "principal" and server.of(LOCAL.id) is not None for server in config.enabled):
        return
    await crib.ready(principal=None)
    if (text := hidden_warning(crib, LOCAL)) is not None:
        logger.warning("%s: %s Clients over standard input and output are this principal.", config.path, text)


async def _report_if_incomplete(crib: Toolcrib, bundle: str, principal: Principal | None) -> None:
    """When the sources are ready, print what `bundle` is missing for `principal`; see `Toolcrib.resolve`."""
    await crib.ready(principal=principal)
    try:
        crib.resolve(bundle, principal).check()
    except BundleIncomplete as error:
        stderr.print(f"Serving the incomplete bundle {bundle}. Missing: {plain(error.diagnosis)}", markup=False)


@contextmanager
def audited(config: Path, *, no_audit: bool) -> Generator[AuditStore | None]:
    """Yield the audit of a gateway that serves `config`, or None if the audit is off.

    Raises:
        InvalidConfig: the configuration cannot be used.
    """
    audit = None if no_audit else read_config(config).audit
    if audit is None:
        yield None
        return
    with AuditStore(
        audit.place,
        max_bytes=audit.max_mb * 1024 * 1024,
        max_age_s=audit.max_days * DAY_S,
        keeps_arguments=audit.arguments,
        redaction=Redaction(audit.redact),
    ) as store:
        yield store
