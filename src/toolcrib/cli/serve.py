"""`toolcrib serve`."""

from __future__ import annotations

import sys
from pathlib import Path

import platformdirs

from toolcrib.cli.output import log_warnings, run, stderr
from toolcrib.crib import Toolcrib
from toolcrib.stores.definitions import DefinitionStore


def serve(config: Path, http: str | None, operations: str, cache: Path | None, *, no_cache: bool) -> None:
    """Serve until a signal arrives; over standard input and output, until the client goes away."""
    log_warnings()
    direct = operations == "all"
    definitions = None if no_cache else DefinitionStore(cache or default_cache())

    async def over_pipes() -> None:
        from toolcrib.surfaces.mcp_gateway.stdio import serve_stdio

        if sys.stdin.isatty():
            stderr.print("Toolcrib speaks MCP here, to a program: give it to your client. Ctrl-C ends it.")
        crib = Toolcrib(definitions=definitions)
        await serve_stdio(crib, crib.add_config(config), direct=direct)

    async def over_http() -> None:
        from toolcrib.surfaces.mcp_gateway.http import Address, serve_http

        def listening(url: str) -> None:
            stderr.print(f"Toolcrib serves {url}", markup=False)

        address = Address.parse(http or "")
        crib = Toolcrib(definitions=definitions)
        await serve_http(crib, crib.add_config(config), address, listening, direct=direct)

    run(over_http if http else over_pipes, as_json=False)


def default_cache() -> Path:
    """Where definitions are kept unless somebody says otherwise."""
    return platformdirs.user_cache_path("toolcrib") / "definitions.sqlite"
