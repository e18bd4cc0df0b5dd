"""`toolcrib serve`."""

from __future__ import annotations

from pathlib import Path

from toolcrib.cli.output import log_warnings, run, stderr
from toolcrib.crib import Toolcrib


def serve(config: Path, http: str | None) -> None:
    """Serve until a signal arrives; over standard input and output, until the client goes away."""

    async def over_pipes() -> None:
        from toolcrib.surfaces.mcp_gateway.stdio import serve_stdio

        crib = Toolcrib()
        await serve_stdio(crib, crib.add_config(config))

    async def over_http() -> None:
        from toolcrib.surfaces.mcp_gateway.http import Address, serve_http

        def listening(url: str) -> None:
            stderr.print(f"Toolcrib serves {url}", markup=False)

        address = Address.parse(http or "")
        crib = Toolcrib()
        await serve_http(crib, crib.add_config(config), address, listening)

    log_warnings()
    run(over_http if http else over_pipes, as_json=False)
