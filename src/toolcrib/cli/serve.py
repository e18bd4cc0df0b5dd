"""`toolcrib serve`."""

from __future__ import annotations

from pathlib import Path

from toolcrib.cli.output import log_warnings, run
from toolcrib.crib import Toolcrib


def serve(config: Path) -> None:
    """Serve over standard input and output until the client goes away or a signal arrives."""

    async def main() -> None:
        from toolcrib.surfaces.mcp_gateway.stdio import serve_stdio

        crib = Toolcrib()
        await serve_stdio(crib, crib.add_config(config))

    log_warnings()
    run(main, as_json=False)
