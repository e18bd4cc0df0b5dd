"""Reads `mcp.json`: the servers, and Toolcrib's own settings in the same file."""

from toolcrib.config.file import (
    DEFAULT_ROOM,
    OUR_KEY,
    SERVER_KEYS,
    SETTINGS,
    SOURCE_SETTINGS,
    Config,
    Room,
    parse_config,
    read_config,
)
from toolcrib.config.servers import ServerConfig

__all__ = [
    "DEFAULT_ROOM",
    "OUR_KEY",
    "SERVER_KEYS",
    "SETTINGS",
    "SOURCE_SETTINGS",
    "Config",
    "Room",
    "ServerConfig",
    "parse_config",
    "read_config",
]
