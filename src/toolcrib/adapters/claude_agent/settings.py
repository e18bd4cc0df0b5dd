"""How the program is started: alone, without anybody's settings, and with nothing to say to anybody but the API."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from toolcrib.agent.loop.config import InnerLoopConfig

CREDENTIALS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")

MAX_CALL_MS = 7 * 24 * 3600 * 1000
"""Until the program itself gives up a call, which is the loop's to do."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What an adapter was made with."""

    model: str
    api_key: str | None
    base_url: str | None
    cwd: Path | None
    env: Mapping[str, str]
    program: Path | None

    def environment(self, folder: Path, config: InnerLoopConfig) -> dict[str, str]:
        """What is laid over this process's own; `folder` is the program's alone."""
        set_here = {
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            # A turn is read from its stream alone.
            "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
            "CLAUDE_CODE_MAX_RETRIES": str(config.retries),
            "ENABLE_TOOL_SEARCH": "false",
            "MAX_STRUCTURED_OUTPUT_RETRIES": str(config.repair_turns + 1),
            "MCP_TOOL_TIMEOUT": str(MAX_CALL_MS),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        if self.api_key is not None:
            # It would prefer a token that it finds.
            set_here |= {"ANTHROPIC_API_KEY": self.api_key, "ANTHROPIC_AUTH_TOKEN": ""}
        if self.base_url is not None:
            set_here["ANTHROPIC_BASE_URL"] = self.base_url
        known = {**os.environ, **set_here, **self.env}
        if any(known.get(name) for name in CREDENTIALS):
            # Otherwise it is where the login lies.
            set_here["CLAUDE_CONFIG_DIR"] = str(folder / "config")
        return {**set_here, **self.env}
