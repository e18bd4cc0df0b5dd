"""The settings with which the program is started: isolated from user settings, and connected only to the API."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from toolcrib.agent.loop.config import InnerLoopConfig

CREDENTIALS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")

MAX_CALL_MS = 7 * 24 * 3600 * 1000
"""The program's own time limit for a call, in milliseconds. It is high, because the loop limits calls."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The arguments of an adapter."""

    model: str
    api_key: str | None
    base_url: str | None
    cwd: Path | None
    env: Mapping[str, str]
    program: Path | None

    def environment(self, folder: Path, config: InnerLoopConfig) -> dict[str, str]:
        """Return the variables that are added to this process's environment. `folder` belongs to the program alone."""
        set_here = {
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            # Turns are only read from the stream.
            "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
            "CLAUDE_CODE_MAX_RETRIES": str(config.retries),
            "ENABLE_TOOL_SEARCH": "false",
            "MAX_STRUCTURED_OUTPUT_RETRIES": str(config.repair_turns + 1),
            "MCP_TOOL_TIMEOUT": str(MAX_CALL_MS),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        if self.api_key is not None:
            # The program would prefer a token that it finds in the environment.
            set_here |= {"ANTHROPIC_API_KEY": self.api_key, "ANTHROPIC_AUTH_TOKEN": ""}
        if self.base_url is not None:
            set_here["ANTHROPIC_BASE_URL"] = self.base_url
        known = {**os.environ, **set_here, **self.env}
        if any(known.get(name) for name in CREDENTIALS):
            # Without credentials, the default folder is kept, because it contains the login.
            set_here["CLAUDE_CONFIG_DIR"] = str(folder / "config")
        return {**set_here, **self.env}
