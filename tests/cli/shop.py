"""A configuration with one server, the shop, whose definitions a test changes between two commands."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers import stated
from tests.servers.launching import write_config

Json = dict[str, Any]


def tool(name: str, description: str = "", **schema: Any) -> Json:
    return {
        "name": name,
        "description": description or f"What {name} does.",
        "inputSchema": {"type": "object", **schema},
    }


def texts(*names: str) -> Json:
    return {"properties": {name: {"type": "string"} for name in names}}


@dataclass(frozen=True)
class Shop:
    """The folder of the configuration; the store of pins is in the same folder."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "mcp.json"

    @property
    def store(self) -> Path:
        return self.folder / "toolcrib" / "pins.sqlite"

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables for a separate process."""
        return {"XDG_STATE_HOME": str(self.folder)}

    def offers(self, *tools: Json) -> None:
        (self.folder / "shop.json").write_text(json.dumps(tools), encoding="utf-8")

    def entry(self, *words: str) -> Json:
        return {"command": sys.executable, "args": [str(stated.__file__), str(self.folder / "shop.json"), *words]}

    def configured(self, *, pins: Json | None = None, **servers: Json) -> Path:
        """Write `servers` in addition to the shop, or instead of it."""
        settings = None if pins is None else {"pins": pins}
        return write_config(self.config, toolcrib=settings, **{"shop": self.entry(), **servers})
